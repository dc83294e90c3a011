"""Versions and labels on the page, in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.archives import pack
from support.stack import Stack, serving

pytest.importorskip("selenium")
from support.browser import CHROMIUM, DRIVER, Browser, url_of

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and its driver are not installed"),
]


@pytest.fixture(scope="module")
def versions(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A model with two versions, of which one has a label, and one that has no such version."""
    folders = {"versions": saved_models / "versions", "three": saved_models / "half_plus_three"}
    archive = pack(tmp_path_factory.mktemp("versions") / "m.tar.gz", {}, folders)
    env = {
        "SAGEMAKER_TFS_VERSION_LABELS": "stable=1,canary=2",
        "SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "versions",
    }
    with serving(str(archive), "--model-server", "embedded", env=env) as stack:
        yield stack


def choices(browser: Browser) -> list[str]:
    """What the field of versions offers."""
    return [option.text for option in browser.driver.find_elements("css selector", "#version option")]


@pytest.mark.parametrize(
    ("choice", "attribute", "answer"),
    [
        ("newest (2)", "", "3.5"),
        ("stable (label)", "tfs-model-label=stable", "2.5"),
        ("canary (label)", "tfs-model-label=canary", "3.5"),
        ("1", "tfs-model-version=1", "2.5"),
    ],
)
def test_a_version_is_chosen_by_number_or_label(
    versions: Stack, browser: Browser, choice: str, attribute: str, answer: str
) -> None:
    """The request names it, and that version answers; so does the code to copy."""
    browser.open(url_of(versions))
    assert choices(browser) == ["newest (2)", "stable (label)", "canary (label)", "2", "1"]
    assert "Labels of versions: stable, canary" in browser.text("#served")
    browser.choose("#version", choice)
    browser.fill("#panel-form [data-input=x]", "1")
    assert browser.send().startswith("200 OK")
    assert answer in browser.text("#answer")
    assert attribute in browser.text("#snippet")
    assert browser.complaints() == []


def test_a_label_is_offered_only_for_models_that_have_its_version(versions: Stack, browser: Browser) -> None:
    """The settings give labels to all models; a request with one that a model lacks would be refused."""
    browser.open(url_of(versions))
    browser.choose("#model", "three")
    assert choices(browser) == ["newest (123)", "123"]
