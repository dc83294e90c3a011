"""A real chromium, without a window: opens the page to try the models, and keeps what it asked for and said."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select

from support.running import Running
from support.waiting import wait_until

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
AXE = Path(__file__).resolve().parents[2] / ".cache" / "axe" / "axe.min.js"
IN_BROWSER = [
    pytest.mark.tensorflow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and its driver are not installed"),
]
NEEDS_AXE = pytest.mark.skipif(not AXE.exists(), reason="axe-core is not there: scripts/vendor-axe")
WAIT_SECONDS = 30.0
SERIOUS = {"serious", "critical"}

Outcome = TypeVar("Outcome")


def url_of(running: Running) -> str:
    """The address of its page."""
    return f"http://127.0.0.1:{running.port}/"


class Browser:
    """One page of one browser."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def visit(self, running: Running) -> None:
        """Open the page of a server, and wait until it knows what is served."""
        self.driver.get(url_of(running))
        self.wait_ready(running)

    def wait_ready(self, running: Running) -> None:
        """Wait until the page knows what is served; fails with what browser and server have said."""
        wait_until(
            lambda: self.find("body[data-ready]"),
            WAIT_SECONDS,
            "the page is ready",
            details=lambda: "\n".join([self.text("body"), *self.complaints(), running.log]),
        )

    def find(self, selector: str) -> WebElement | None:
        """The first element of a CSS selector, or None."""
        found = self.driver.find_elements(By.CSS_SELECTOR, selector)
        return found[0] if found else None

    def element(self, selector: str) -> WebElement:
        """The first element of a CSS selector, which must be there."""
        found = self.find(selector)
        assert found is not None, f"there is no {selector}"
        return found

    def text(self, selector: str) -> str:
        """What an element shows; "" if it is not there."""
        found = self.find(selector)
        return "" if found is None else str(found.text)

    def wait(self, condition: Callable[[], Outcome], what: str) -> Outcome:
        """Wait until ``condition`` returns something true."""
        return wait_until(condition, WAIT_SECONDS, what)

    def click(self, selector: str) -> None:
        """Click on an element."""
        self.element(selector).click()

    def fill(self, selector: str, text: str) -> None:
        """Replace what is in a field, as a person types it."""
        field = self.element(selector)
        field.clear()
        field.send_keys(text)

    def choose(self, selector: str, text: str) -> None:
        """Choose an option by its text, without what says that it is not loaded."""
        options = Select(self.element(selector)).options
        chosen = [option for option in options if option.text.partition(" (not")[0] == text]
        assert chosen, [option.text for option in options]
        chosen[0].click()

    def drop(self, selector: str, path: Path) -> None:
        """Drag a file from the desktop over an element, and drop it."""
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", self.element(selector))
        box = self.driver.execute_script(
            "return arguments[0].getBoundingClientRect()", self.element(selector)
        )
        place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.command("Input.dispatchDragEvent", {"type": kind, "data": data, **place})

    def send(self) -> str:
        """Send the request of the page; the status line of the answer."""
        self.driver.execute_script("document.getElementById('status').textContent = ''")
        self.click("#send")
        return self.wait(lambda: self.text("#status"), "there is an answer")

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """Have a screen of this size in pixels, and prefer dark colours or light ones."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.command("Emulation.setDeviceMetricsOverride", size)
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", {"features": [feature]})

    def command(self, name: str, values: Mapping[str, Any]) -> None:
        """One command of the DevTools protocol."""
        self.driver.execute_cdp_cmd(name, dict(values))

    def complaints(self) -> list[str]:
        """What the console has said since the last call."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]

    def asked(self) -> list[str]:
        """The addresses of all requests since the last call."""
        entries = self.driver.get_log("performance")  # type: ignore[no-untyped-call]
        events = [json.loads(entry["message"])["message"] for entry in entries]
        sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return [params["request"]["url"] for params in sent]

    def barriers(self) -> list[Any]:
        """What axe-core finds that keeps people from using the page, as far as it is serious, and what is cut off."""
        self.driver.execute_script(AXE.read_text())
        found = self.driver.execute_async_script(
            "const done = arguments[0]; axe.run().then((found) => done(found.violations.map("
            "(each) => [each.id, each.impact, each.nodes.map((node) => node.html)])))"
        )
        room = self.driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
        cut_off = [] if room[0] <= room[1] else [room]
        return [violation for violation in found if violation[1] in SERIOUS] + cut_off


@contextmanager
def browsing() -> Iterator[Browser]:
    """A browser that ends with the block."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
