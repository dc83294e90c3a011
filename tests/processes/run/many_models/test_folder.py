"""`tfs-proxy serve --multi-model FOLDER` while archives come and go; the contract has what requests load."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX
from support.multi_model import MultiModelStack, saying, script_model, serving_many
from support.stack import Stack

pytestmark = NEEDS_NGINX


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive; more come later."""
    root = tmp_path_factory.mktemp("models")
    script_model(root / "a.tar.gz", saying("a"))
    return root


@pytest.fixture(scope="module")
def stack(folder: Path) -> Iterator[MultiModelStack]:
    """The folder, served."""
    with serving_many("--multi-model", str(folder)) as running:
        yield running


def test_an_archive_that_comes_later_is_found(stack: MultiModelStack, folder: Path) -> None:
    """Nothing needs to be restarted; the folder is looked at once a second."""
    assert stack.target("later.tar.gz", "x").status == 404
    script_model(folder / "later.tar.gz", saying("later"))

    stack.wait_until(lambda: stack.target("later.tar.gz", "x").status == 200, "the archive is found")
    assert stack.target("later.tar.gz", "x").body.split()[0] == b"later"


def test_invocations_need_a_model(many: MultiModelStack, stack: MultiModelStack) -> None:
    """A client learns how to name one; with a header that the run does not understand, too."""
    answers = (stack.invoke("{}"), many.invoke("{}"), many.target("a.tar.gz", "{}"))

    assert [answer.status for answer in answers] == [404] * 3
    assert all("/models/NAME/invoke" in answer.json["error"] for answer in answers)
    assert ["--multi-model" in answer.json["error"] for answer in answers] == [False, True, True]


def test_an_unloaded_archive_is_loaded_again(stack: MultiModelStack) -> None:
    """By the next request that names it."""
    assert stack.target("a.tar.gz", "x").status == 200
    assert stack.unload("a").status == 200
    assert "a" not in stack.urls()

    assert stack.target("a.tar.gz", "x").status == 200


def test_archives_whose_names_meet_are_refused_at_the_start(tmp_path: Path) -> None:
    """Both are named, and the exit status is that of a setting that can't be used."""
    for path in ("team/a.tar.gz", "team--a.tar.gz"):
        script_model(tmp_path / path, saying(path))
    stack = Stack("--multi-model", str(tmp_path))
    try:
        assert stack.wait() == 2
        assert (
            "team--a.tar.gz and team/a.tar.gz would both be the model team--a, because it has -- for slashes: "
            "rename one of them."
        ) in stack.log
    finally:
        stack.kill()
