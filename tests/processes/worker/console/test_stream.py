"""The page's Stream, in a real browser: messages there and back, how a stream ends, and why there is none."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.archives import pack
from support.browser import IN_BROWSER, NEEDS_AXE, Browser
from support.stack import Stack, serving

pytest.importorskip("selenium")

pytestmark = [*IN_BROWSER, pytest.mark.nginx]
SCRIPT = """
async def stream(messages, context):
    async for message in messages:
        if message == "fail":
            raise ValueError("as told")
        if message == "end":
            return
        yield message
"""
TEXT, LOG = "#stream-text", "#messages"


@pytest.fixture(scope="module")
def echo(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose script sends back what it gets."""
    folders = {"half": saved_models / "half_plus_two"}
    archive = pack(tmp_path_factory.mktemp("echo") / "m.tar.gz", {"code/inference.py": SCRIPT}, folders)
    with serving(str(archive), "--model-server", "embedded") as stack:
        yield stack


def opened(browser: Browser, stack: Stack) -> None:
    browser.visit(stack)
    browser.click("#tab-stream")


def sent(browser: Browser, text: str, answer: str) -> None:
    browser.fill(TEXT, text)
    browser.click("#send")
    browser.wait(lambda: answer in browser.text(LOG), "the answer is there")


def test_messages_go_and_come_with_their_times(echo: Stack, browser: Browser, tmp_path: Path) -> None:
    """Text as text, a file as bytes, on one stream that opens by itself and is closed by the button."""
    picture = tmp_path / "picture.bin"
    picture.write_bytes(bytes(range(250, 256)))
    opened(browser, echo)
    assert browser.text("#stream-state") == "closed"
    sent(browser, "hello", "received\nhello")
    browser.element("#stream-file").send_keys(str(picture))
    browser.wait(lambda: "received\n6 bytes: fa fb fc fd fe ff" in browser.text(LOG), "the bytes are back")
    browser.drop(LOG, picture)
    browser.wait(lambda: browser.text(LOG).count("6 bytes") == 4, "so are those of a dropped file")
    assert browser.text("#stream-state") == "open"
    browser.click("#stream-connect")
    browser.wait(lambda: "closed\n1000" in browser.text(LOG), "it says how it ended")
    assert browser.text("#stream-state") == "closed"
    assert 'stream.send("hello")' in browser.text("#snippet")
    assert browser.complaints() == []


def test_a_stream_and_a_request_show_what_is_theirs(echo: Stack, browser: Browser) -> None:
    """Messages of the one and fields and answer of the other, also after both have been used."""
    opened(browser, echo)
    sent(browser, "hello", "received")
    browser.click("#tab-form")
    browser.send()
    for tab, of_streams in (("form", False), ("stream", True), ("text", False)):
        browser.click(f"#tab-{tab}")
        assert browser.element(LOG).is_displayed() is of_streams
        for selector in ("#answer", "#facts", "#status", "#model", "#clients"):
            assert browser.element(selector).is_displayed() is not of_streams, selector


def test_an_error_of_the_script_is_shown_by_its_code(echo: Stack, browser: Browser) -> None:
    opened(browser, echo)
    sent(browser, "fail", "failed\n1011")
    sent(browser, "end", "closed\n1000")


def test_a_stream_that_is_refused_is_said_at_its_path(
    saved_models: Path, tmp_path: Path, browser: Browser
) -> None:
    """Without streams there is no button to press, and the sentence names what turns them on."""
    with serving(str(saved_models / "half_plus_two"), "--model-server", "embedded") as stack:
        opened(browser, stack)
        assert "TFS_PROXY_STREAM=true" in browser.text("#stream-note")
        assert not browser.element("#send").is_enabled()
        assert not browser.element("#stream-controls").is_displayed()
        browser.click("#tab-form")
        assert browser.send().startswith("200 OK")


def test_each_message_is_a_request_without_a_function(saved_models: Path, browser: Browser) -> None:
    env = {"TFS_PROXY_STREAM": "true"}
    with serving(str(saved_models / "half_plus_two"), "--model-server", "embedded", env=env) as stack:
        opened(browser, stack)
        assert "a request of its own" in browser.text("#stream-note")
        browser.click("#send")
        browser.wait(lambda: "received" in browser.text(LOG), "the model has answered")
        assert "2.5" in browser.text(LOG)
        browser.click("#stream-connect")  # the server's end would wait for the stream's


@pytest.mark.parametrize("width", [1280, 390])
@NEEDS_AXE
def test_everybody_can_use_it(echo: Stack, browser: Browser, width: int) -> None:
    browser.look(width, 900)
    opened(browser, echo)
    sent(browser, "hello", "received")
    assert browser.barriers() == []
