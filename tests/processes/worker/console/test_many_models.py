"""The page in a real browser while models come and go: what is there, loading, trying, unloading."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX, pack
from support.multi_model import MultiModelStack, saying, script_model, serving_many

pytest.importorskip("selenium")
from support.browser import IN_BROWSER, NEEDS_AXE, Browser

pytestmark = [*IN_BROWSER, NEEDS_NGINX]
ARCHIVES = 12


@pytest.fixture(scope="module")
def archives(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many archives of one model each, and one of two models."""
    root = tmp_path_factory.mktemp("models")
    half, three = (saved_models / name for name in ("half_plus_two", "half_plus_three"))
    (root / "team").mkdir()
    for number in range(ARCHIVES):
        pack(root / "team" / f"m{number}.tar.gz", {}, {"half": half})
    pack(root / "twins.tar.gz", {}, {"half": half, "three": three})
    return root


@pytest.fixture(scope="module")
def folder(archives: Path) -> Iterator[MultiModelStack]:
    """A stack that loads archives as requests name them."""
    env = {"SAGEMAKER_TFS_VERSION_LABELS": "stable=1"}
    with serving_many("--multi-model", str(archives), "--model-server", "embedded", env=env) as stack:
        yield stack


@pytest.fixture(scope="module")
def empty() -> Iterator[MultiModelStack]:
    """A stack without a model."""
    with serving_many("--model-server", "embedded", env={"TFS_PROXY_DOORS": "v1,v2,page"}) as stack:
        yield stack


def state_of(browser: Browser, name: str) -> str:
    """What the table of models says of one; "" if it is not there."""
    states = browser.driver.execute_script(
        "return [...document.querySelectorAll('#models tr')].map((row) => [row.cells[0], row.cells[1]]"
        ".map((cell) => cell.innerText))"
    )
    return str(dict(states).get(name, ""))


def test_an_archive_of_the_folder_is_loaded_by_the_request_that_tries_it(
    folder: MultiModelStack, browser: Browser
) -> None:
    """All archives are offered; the first request loads one, after which its form is there and is answered."""
    browser.visit(folder)
    assert state_of(browser, "team--m3") == "not loaded"
    assert state_of(browser, "twins") == "not loaded"
    browser.choose("#model", "team--m3")
    browser.click("#tab-text")
    browser.fill("#body", '{"instances": [1.0]}')
    assert browser.send().startswith("200 OK")
    assert "2.5" in browser.text("#answer")

    browser.wait(lambda: state_of(browser, "team--m3") == "ready", "the model is shown as loaded")
    assert browser.element("#body").get_attribute("value") == '{"instances": [1.0]}'
    browser.click("#tab-form")
    browser.wait(lambda: browser.find("#panel-form [data-input=x]"), "the form of its signature is there")
    browser.fill("#panel-form [data-input=x]", "3")
    assert browser.send().startswith("200 OK")
    assert "3.5" in browser.text("#answer")
    assert "team--m3, version 1" in browser.text("#served")
    assert "/models/team--m3/invoke" in browser.text("#snippet")
    assert browser.complaints() == []


def test_each_model_of_an_archive_can_be_chosen(folder: MultiModelStack, browser: Browser) -> None:
    """Loaded by its button, an archive of two models is two choices, and requests say which; labels are there."""
    browser.visit(folder)
    browser.click('[aria-label="Load twins"]')
    browser.wait(lambda: state_of(browser, "twins") == "ready", "the archive has been loaded")
    browser.choose("#model", "twins / half")
    browser.wait(lambda: browser.find("#panel-form [data-input=x]"), "the form of its signature is there")
    browser.choose("#version", "stable (label)")
    browser.wait(lambda: browser.find("#panel-form [data-input=x]"), "the form is there for the label, too")
    browser.fill("#panel-form [data-input=x]", "1")
    assert browser.send().startswith("200 OK")
    assert "2.5" in browser.text("#answer")
    assert "tfs-model-name=half,tfs-model-label=stable" in browser.text("#snippet")
    assert browser.complaints() == []


def test_a_script_that_is_the_model_is_tried(
    empty: MultiModelStack, browser: Browser, tmp_path: Path
) -> None:
    """It has no signature: the editor's body goes to it."""
    empty.loaded("said", script_model(tmp_path / "said.tar.gz", saying("said")))
    browser.visit(empty)
    browser.choose("#model", "said")
    browser.click("#tab-text")
    browser.fill("#body", "hello")
    browser.fill("#content-type", "text/plain")
    assert browser.send().startswith("200 OK")
    assert "said" in browser.text("#answer")
    assert browser.complaints() == []
    assert empty.unload("said").status == 200


def test_without_a_model_one_is_loaded_tried_and_unloaded(
    empty: MultiModelStack, browser: Browser, saved_models: Path
) -> None:
    """The page says that nothing is loaded; a path that is wrong is explained at its field."""
    browser.visit(empty)
    assert browser.text("#models-none") == "No model is loaded."
    assert browser.text("#model") == "none loaded"
    browser.click("#send")
    assert "No model is loaded" in browser.text("#model-field .error")

    browser.fill("#load-name", "mine")
    browser.fill("#load-url", "models/mine")
    browser.click("#load-send")
    browser.wait(lambda: "absolute path" in browser.text("#models-note"), "the sentence is there")
    assert browser.element("#load-url").get_attribute("aria-invalid") == "true"
    browser.complaints()
    browser.fill("#load-url", str(saved_models / "half_plus_two"))
    browser.click("#load-send")
    browser.wait(lambda: browser.text("#models-note") == "mine is loaded.", "the model is loaded")
    browser.wait(lambda: browser.find("#panel-form [data-input=x]"), "it is chosen, with its form")
    browser.fill("#panel-form [data-input=x]", "1")
    assert browser.send().startswith("200 OK")
    assert "2.5" in browser.text("#answer")

    browser.click('[aria-label="Unload mine"]')
    browser.wait(lambda: browser.text("#models-note") == "mine is unloaded.", "the model is gone")
    browser.wait(lambda: browser.text("#model") == "none loaded", "it is no choice any more")
    assert browser.complaints() == []


@NEEDS_AXE
@pytest.mark.parametrize("width", [1280, 390])
def test_the_models_can_be_used_by_all(folder: MultiModelStack, browser: Browser, width: int) -> None:
    """axe-core finds no serious violation, and nothing is cut off on a phone."""
    browser.look(width, 900, dark=width == 390)
    browser.visit(folder)
    assert browser.barriers() == []
