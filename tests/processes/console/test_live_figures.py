"""What the page shows of `/metrics`, in a real browser: errors by status, and by the stage that they arose in."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.archives import pack, without_nginx
from support.stack import Stack, serving

pytest.importorskip("selenium")
from support.browser import CHROMIUM, DRIVER, Browser, url_of

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and its driver are not installed"),
]
SCRIPT = """
def input_handler(data, context):
    raise ValueError("nothing fits")


def output_handler(response, context):
    return response.content, "application/json"
"""


@pytest.fixture(scope="module")
def failing(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A script that refuses every request, without nginx."""
    folders = {"half": saved_models / "half_plus_two"}
    archive = pack(tmp_path_factory.mktemp("failing") / "m.tar.gz", {"code/inference.py": SCRIPT}, folders)
    with serving(str(archive), "--model-server", "embedded", env=without_nginx()) as stack:
        yield stack


def stages(browser: Browser) -> dict[str, str]:
    """How many requests have failed, by the stage as the page names it."""
    lines = browser.driver.execute_script(
        "return [...document.querySelectorAll('#error-stages .barline')].map((line) =>"
        " [line.querySelector('.name').textContent, line.querySelector('.number').textContent])"
    )
    return dict(lines)


def test_errors_stand_by_their_stage(failing: Stack, browser: Browser) -> None:
    """Of the script's function, of a broken body, and of none; the numbers go on by themselves."""
    browser.open(url_of(failing))
    assert stages(browser) == {}
    browser.click("#tab-text")
    browser.fill("#body", "x")
    assert browser.send().startswith("500")
    browser.wait(lambda: stages(browser) == {"input handler": "1"}, "the page has seen it")
    assert browser.text("#errors-note").endswith("500")

    failing.invoke(b"no gzip", **{"Content-Encoding": "gzip"})
    failing.ask("GET", "/nothing/here")
    expected = {"input handler": "1", "read": "1", "no stage": "1"}
    browser.wait(lambda: stages(browser) == expected, "the page has seen the others")
