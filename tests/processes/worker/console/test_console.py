"""The page to try the models, in a real browser against a real stack."""

import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.archives import pack, without_nginx
from support.browser import IN_BROWSER, NEEDS_AXE, Browser, url_of
from support.building import EXAMPLES, alone_in
from support.stack import Stack, serving

pytest.importorskip("selenium")

pytestmark = IN_BROWSER
DIGITS = EXAMPLES / "digits"
SCREENS = [(1440, 900, False), (768, 1024, True), (375, 812, False), (375, 812, True)]


@pytest.fixture(scope="module")
def digits() -> Iterator[Stack]:
    """A stack with the model of the demo."""
    with alone_in(DIGITS):
        subprocess.run([sys.executable, str(DIGITS / "train.py")], check=True, capture_output=True)
    with serving(str(DIGITS / "build" / "model.tar.gz")) as stack:
        yield stack


@pytest.fixture(scope="module")
def bare_digits(digits: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack with the model of the demo without its script."""
    folder = tmp_path_factory.mktemp("bare")
    with tarfile.open(DIGITS / "build" / "model.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    with serving(str(pack(folder / "bare.tar.gz", {}, {"digits": folder / "digits"}))) as stack:
        yield stack


def held_back(number: int) -> tuple[Path, int]:
    """A PNG that the model has not been trained on, and the digit that it shows."""
    labels = json.loads((DIGITS / "build" / "labels.json").read_text())
    name = [name for name in sorted(labels) if name.endswith(".png")][number]
    return DIGITS / "build" / "images" / name, labels[name]


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_dropped_image_is_read(digits: Stack, browser: Browser, number: int) -> None:
    """A held-back PNG is dropped and sent: the digit stands there, with times; nothing outside was asked."""
    path, digit = held_back(number)
    browser.visit(digits)
    browser.drop("#drop", path)
    browser.wait(lambda: path.name in browser.text("#file-name"), "the file has been taken")
    assert browser.element("#content-type").get_attribute("value") == "image/png"
    assert browser.send().startswith("200 OK")
    assert browser.text("#answer .label") == str(digit)
    stages = [line.text for line in browser.driver.find_elements("css selector", "#timing .name")]
    assert {"input handler", "model server", "output handler", "total"} <= set(stages)
    assert f"--data-binary '@{path.name}'" in browser.text("#snippet")
    browser.wait(lambda: float(browser.text("#rate")) > 0, "the live rate has seen the request")
    assert browser.complaints() == []
    foreign = [url for url in browser.asked() if not url.startswith((url_of(digits), "blob:"))]
    assert foreign == []


def test_the_page_says_what_is_served(digits: Stack, browser: Browser) -> None:
    """Model, version, signature, script and readiness are there."""
    browser.visit(digits)
    served = browser.text("#served")
    for part in ("digits, version 1", "serving_default", "image", "float [?, 8, 8, 1]", "inference.py"):
        assert part in served
    browser.wait(lambda: browser.text("#ready") == "ready", "the page knows that the stack is ready")


@pytest.mark.parametrize(("width", "height", "dark"), SCREENS)
@NEEDS_AXE
def test_everybody_can_use_it(digits: Stack, browser: Browser, width: int, height: int, dark: bool) -> None:
    """On a desk and on a phone, light and dark, axe-core finds nothing serious and nothing is cut off."""
    browser.look(width, height, dark=dark)
    browser.visit(digits)
    path, _ = held_back(0)
    browser.drop("#drop", path)
    browser.wait(lambda: path.name in browser.text("#file-name"), "the file has been taken")
    browser.send()
    for tab in ("form", "file", "text"):
        browser.click(f"#tab-{tab}")
        assert browser.barriers() == []


def test_a_form_of_the_signature_is_answered(named: Stack, browser: Browser) -> None:
    """The form has a field for each input; its request is answered."""
    browser.visit(named)
    names = [
        each.get_attribute("data-input")
        for each in browser.driver.find_elements("css selector", "#panel-form [data-input]")
    ]
    assert sorted(map(str, names)) == ["a", "b"]
    assert browser.send().startswith("200 OK")
    assert browser.complaints() == []


def test_a_mistake_of_the_form_takes_answer_and_code_away(named: Stack, browser: Browser) -> None:
    """Nothing green stands beside a request that was not sent, and no sentence in the box to copy from."""
    browser.visit(named)
    assert browser.send().startswith("200 OK")
    browser.fill("#panel-form [data-input=a]", "one, two")
    assert browser.send().startswith("Nothing was sent")
    assert "not numbers" in browser.text(".field:has([data-input=a]) .error")
    assert browser.text("#answer") == browser.text("#facts") == browser.text("#timing") == ""
    assert not browser.element("#code").is_displayed()
    browser.fill("#panel-form [data-input=a]", "1, 2, 3")
    assert "[1,2,3]" in browser.text("#snippet")


def test_a_phone_shows_the_form_first(named: Stack, browser: Browser) -> None:
    """Before the figures; Version, Signature and Accept are behind a button, and come out for a sentence."""
    browser.look(375, 812)
    browser.visit(named)
    tops = [browser.element(each).rect["y"] for each in ("#request", ".tiles")]
    assert tops == sorted(tops)
    more = [browser.element(each) for each in ("#version", "#signature", "#accept")]
    assert [each.is_displayed() for each in more] == [False] * 3
    browser.click("#more")
    browser.fill("#accept", "image/png")
    browser.click("#more")
    browser.send()
    assert browser.wait(lambda: browser.text(".field:has(#accept) .error"), "the sentence stands there")


def test_a_plain_value_for_a_list_of_one(saved_models: Path, browser: Browser) -> None:
    """The form writes it as the signature has it, since plain values of several inputs mix their records."""
    with serving(str(saved_models / "bare"), "--model-server", "embedded") as stack:
        browser.visit(stack)
        browser.choose("#signature", "one_each")
        assert browser.element("#panel-form [data-input=x]").get_attribute("type") == "number"
        browser.fill("#panel-form [data-input=x]", "5")
        assert browser.send().startswith("200 OK")
        assert json.loads(browser_body(browser)) == {"instances": [[5]]}


def test_a_wrong_shape_is_explained_at_its_field(bare_digits: Stack, browser: Browser) -> None:
    """The server's sentence about an input stands at the field of that input, which has the focus."""
    browser.visit(bare_digits)
    browser.fill("#panel-form [data-input=image]", "1, 2, 3, 4")
    assert browser.send().startswith("400")
    field = browser.wait(lambda: browser.find("[aria-invalid=true]"), "a field is marked")
    assert field is not None
    assert field.get_attribute("data-input") == "image"
    sentence = browser.text(".field:has([data-input=image]) .error")
    assert "shape" in sentence
    assert sentence == bare_digits.invoke(browser_body(browser)).json["error"]
    assert field == browser.driver.switch_to.active_element


def browser_body(browser: Browser) -> str:
    """The JSON that the page has sent, as its snippet for curl has it."""
    found = re.search(r"--data-binary '(.*)'\Z", browser.text("#snippet"), re.DOTALL)
    assert found is not None
    return found[1]


def test_a_model_of_pictures_opens_on_file(model_files: Path, tmp_path: Path, browser: Browser) -> None:
    """Each way of giving the input has its content type, and errors name no nodes of the graph."""
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\n")

    def content_type() -> str | None:
        return browser.element("#content-type").get_attribute("value")

    with serving(str(model_files / "picture"), "--model-server", "embedded") as stack:
        browser.visit(stack)
        assert browser.element("#tab-file").get_attribute("aria-selected") == "true"
        assert content_type() == "application/x-image"
        browser.drop("#drop", broken)
        browser.wait(lambda: content_type() == "image/png", "the file has been taken")
        for tab, wanted in (
            ("form", "application/json"),
            ("file", "image/png"),
            ("text", "application/json"),
        ):
            browser.click(f"#tab-{tab}")
            assert content_type() == wanted
        browser.click("#tab-file")
        assert browser.send().startswith("400")
        sentence = browser.wait(lambda: browser.text(".error"), "the sentence is there")
        assert "node" not in sentence
        assert "PNG" in sentence


def test_a_request_for_the_facts_that_fails_is_sent_again(named: Stack, browser: Browser) -> None:
    """A page that is opened while the server does not answer comes to life once it does."""
    browser.command("Network.setBlockedURLs", {"urls": ["*/facts.json"]})
    browser.driver.get(url_of(named))
    browser.wait(lambda: f"{url_of(named)}console/facts.json" in browser.asked(), "the request has failed")
    browser.command("Network.setBlockedURLs", {"urls": []})
    browser.wait_ready(named)
    assert browser.send().startswith("200 OK")


def test_markup_is_only_text(named: Stack, browser: Browser) -> None:
    """What a person or a server says is never read as HTML."""
    browser.visit(named)
    browser.click("#tab-text")
    browser.fill("#body", '{"instances": [{"<img src=x onerror=alert(1)>": 1}]}')
    assert browser.send().startswith("400")
    browser.wait(lambda: browser.find(".error"), "the sentence is there")
    assert browser.find("img[src=x]") is None


def test_keys_alone_send_a_request(named: Stack, browser: Browser) -> None:
    """Tab reaches every field, arrows choose between tabs, and Enter sends."""
    browser.visit(named)
    body = browser.element("body")
    reached: list[str] = []
    for _ in range(40):
        body.send_keys("\ue004")
        active = browser.driver.switch_to.active_element
        reached.append(str(active.get_attribute("id")))
        body = active
        if reached[-1] == "send":
            break
    assert {"version", "signature", "content-type", "accept", "tab-form", "input-a", "send"} <= set(reached)
    body.send_keys("\ue007")
    browser.wait(lambda: browser.text("#status").startswith("200"), "Enter has sent the request")
    browser.element("#tab-form").send_keys("\ue014")
    assert browser.element("#tab-file").get_attribute("aria-selected") == "true"


def test_it_can_be_switched_off(saved_models: Path, tmp_path: Path) -> None:
    """Without page in TFS_PROXY_DOORS a browser gets what every client gets."""
    archive = pack(tmp_path / "model.tar.gz", {}, {"half": saved_models / "half_plus_two"})
    with serving(str(archive), env={"TFS_PROXY_DOORS": "v1,v2"}) as stack:
        assert stack.ask("GET", "/", headers={"Accept": "text/html"}).json == {"status": "alive"}
        assert stack.ask("GET", "/console/main.js").status == 404


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
    browser.visit(failing)
    assert stages(browser) == {}
    browser.click("#tab-text")
    browser.fill("#body", "x")
    assert browser.send().startswith("500")
    browser.wait(lambda: stages(browser) == {"input handler": "1"}, "the page has seen it")
    assert browser.text("#errors-note").endswith("500")

    failing.invoke(b"no gzip", **{"Content-Encoding": "gzip"})
    failing.ask("GET", "/nothing/here")
    expected = {"input handler": "1", "read": "1", "other": "1"}
    browser.wait(lambda: stages(browser) == expected, "the page has seen the others")


def test_the_page_asks_once_for_a_key(saved_models: Path, tmp_path: Path, browser: Browser) -> None:
    """A wrong one is asked for anew, the right one stays in the tab, and no snippet shows it."""
    key = "aN" * 16
    (tmp_path / "keys").write_text(f"ann {key}")
    archive = pack(tmp_path / "model.tar.gz", {}, {"half_plus_two": saved_models / "half_plus_two"})
    env = {"TFS_PROXY_API_KEYS": str(tmp_path / "keys")}
    with serving(str(archive), "--model-server", "embedded", env=env) as stack:
        browser.driver.get(url_of(stack))
        for given, said in ((key.upper(), "kept in this tab alone"), (key, "does not take this key")):
            browser.wait(lambda said=said: said in browser.text("#key-note"), said)  # type: ignore[misc]
            browser.fill("#key", given)
            browser.click("#key-send")
        browser.wait_ready(stack)
        assert browser.send().startswith("200 OK")
        assert "-H 'Authorization: Bearer KEY'" in browser.text("#snippet")
        browser.visit(stack)
        assert browser.send().startswith("200 OK")
        browser.wait(lambda: float(browser.text("#rate").replace("\u2013", "0")) > 0, "the figures have come")
        assert browser.driver.execute_script("return localStorage.length") == 0
