"""`tfs-proxy serve --multi-model FOLDER`: archives by name, loaded when the first request names them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX
from support.multi_model import MultiModelStack, saying, script_model, serving_many
from support.stack import Stack

pytestmark = NEEDS_NGINX


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three archives, one of which can't be served."""
    root = tmp_path_factory.mktemp("models")
    script_model(root / "a.tar.gz", saying("a"))
    script_model(root / "team" / "b.tar.gz", saying("b"))
    script_model(root / "broken.tar.gz", "def model_fn(model_dir): raise ValueError('no weights')\n")
    return root


@pytest.fixture(scope="module")
def stack(folder: Path) -> Iterator[MultiModelStack]:
    """The folder, served."""
    with serving_many("--multi-model", str(folder)) as running:
        yield running


def test_an_archive_is_loaded_when_a_request_names_it(stack: MultiModelStack, folder: Path) -> None:
    """By its path, as boto3's TargetModel does, or by its name; then it is in the list."""
    assert "team--b" not in stack.urls()

    first = stack.target("team/b.tar.gz", "x")
    second = stack.invoke_model("team--b", "x")
    with_slash = stack.target("/team/b.tar.gz", "x")

    assert (first.status, first.body.split()[0]) == (200, b"b")
    assert second.body == with_slash.body == first.body
    assert stack.urls()["team--b"] == str(folder / "team" / "b.tar.gz")


def test_an_archive_that_comes_later_is_found(stack: MultiModelStack, folder: Path) -> None:
    """Nothing needs to be restarted; the folder is looked at once a second."""
    assert stack.target("later.tar.gz", "x").status == 404
    script_model(folder / "later.tar.gz", saying("later"))

    stack.wait_until(lambda: stack.target("later.tar.gz", "x").status == 200, "the archive is found")
    assert stack.target("later.tar.gz", "x").body.split()[0] == b"later"


def test_an_unloaded_archive_is_loaded_again(stack: MultiModelStack) -> None:
    """By the next request that names it."""
    assert stack.target("a.tar.gz", "x").status == 200
    assert stack.unload("a").status == 200
    assert "a" not in stack.urls()

    assert stack.target("a.tar.gz", "x").status == 200


@pytest.mark.parametrize("path", ["nowhere.tar.gz", "team/nowhere.tar.gz"])
def test_an_archive_that_is_not_there_is_a_404(stack: MultiModelStack, path: str) -> None:
    """With the name that it would have."""
    answer = stack.target(path, "x")

    assert answer.status == 404
    assert path.removesuffix(".tar.gz").replace("/", "--") in answer.json["error"]


def test_a_request_without_the_header_is_a_404_that_says_how(stack: MultiModelStack) -> None:
    """The header's name is in the sentence."""
    answer = stack.invoke("x", "text/plain")

    assert answer.status == 404
    assert "X-Amzn-SageMaker-Target-Model" in answer.json["error"]


def test_an_archive_that_cannot_be_served_is_a_400(stack: MultiModelStack) -> None:
    """With the reason, for each request that names it; other archives are served."""
    answers = [stack.target("broken.tar.gz", "x") for _ in range(2)]

    assert [answer.status for answer in answers] == [400, 400]
    assert "ValueError: no weights" in answers[0].json["error"]
    assert stack.target("a.tar.gz", "x").status == 200


def test_loads_take_only_what_is_below_the_folder(
    stack: MultiModelStack, tmp_path: Path, folder: Path
) -> None:
    """Whoever reaches the port must not have other files of the machine served."""
    outside = script_model(tmp_path / "a.tar.gz", saying("outside"))

    refused = stack.load("outside", outside)

    assert refused.status == 400
    assert "can't be loaded: with --multi-model" in refused.json["error"]
    stack.loaded("another-name", folder / "a.tar.gz")
    assert stack.unload("another-name").status == 200


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
