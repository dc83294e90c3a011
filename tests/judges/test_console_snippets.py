"""The page's code for tritonclient, run as it stands: it gets the answer that the page shows."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.archives import pack
from support.judges import judge
from support.stack import Stack, serving

pytest.importorskip("selenium")
from support.browser import IN_BROWSER, Browser, browsing

pytestmark = IN_BROWSER


@pytest.fixture(scope="module")
def stack(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A model with versions and a label, and one with several tensors of several types."""
    folders = {name: saved_models / name for name in ("versions", "multi_io")}
    archive = pack(tmp_path_factory.mktemp("archive") / "model.tar.gz", {}, folders)
    env = {"SAGEMAKER_TFS_VERSION_LABELS": "stable=1", "SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "versions"}
    with serving(str(archive), "--model-server", "embedded", env=env) as running:
        yield running


@pytest.fixture
def browser() -> Iterator[Browser]:
    with browsing() as opened:
        yield opened


def numbers(text: str) -> list[float]:
    """All numbers in what a client prints, or the page shows."""
    return [float(number) for number in re.findall(r"-?\d+\.?\d*", text)]


def printed(browser: Browser) -> str:
    names = [tab.text for tab in browser.driver.find_elements("css selector", "#clients button")]
    browser.click(f"#client-{names.index('tritonclient')}")
    return judge("tritonclient").run("python", "-c", browser.text("#snippet"))


@pytest.mark.parametrize(("choice", "answer"), [("newest (2)", 4.0), ("stable (label)", 3.0), ("1", 3.0)])
def test_a_version_is_asked_by_number_and_label(
    stack: Stack, browser: Browser, choice: str, answer: float
) -> None:
    browser.visit(stack)
    browser.choose("#version", choice)
    browser.fill("#panel-form [data-input=x]", "2")
    assert browser.send().startswith("200 OK")
    browser.driver.execute_script("[...document.querySelectorAll('#views button')].at(-1).click()")
    assert numbers(browser.text("#answer pre")) == [answer]
    assert numbers(printed(browser)) == [answer]


def test_several_tensors_go_with_their_types(
    stack: Stack,
    browser: Browser,
) -> None:
    """Inputs of several types as the form has them, and every output of the model."""
    browser.visit(stack)
    browser.choose("#model", "multi_io")
    browser.fill("#panel-form [data-input=a]", "1, 2, 3")
    browser.fill("#panel-form [data-input=b]", "20")
    assert browser.send().startswith("200 OK")
    said = printed(browser)
    assert sorted(numbers(said)) == [21.0, 22.0, 23.0, 40.0]
    assert "big" in said
    browser.driver.execute_script("[...document.querySelectorAll('#views button')].at(-1).click()")
    assert sorted(numbers(browser.text("#answer pre"))) == [21.0, 22.0, 23.0, 40.0]
