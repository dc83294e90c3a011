"""`tfs-proxy check --multi-model`: which of many archives would fail, by the public command."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from support.archives import SAVED_MODEL, pack
from unit.conftest import Command

MODEL: Mapping[str, str | bytes] = {"m/1/saved_model.pb": SAVED_MODEL}
MIRROR = "def handler(data, context): return data.read(), context.request_content_type"


def archive(path: Path, **more: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pack(path, {**MODEL, **more})


def folder_of_a_model(path: Path) -> None:
    for folder in ("1", "code"):
        (path / folder).mkdir(parents=True)
    (path / "1" / "saved_model.pb").write_bytes(SAVED_MODEL)
    (path / "code" / "inference.py").write_text(MIRROR)


@pytest.fixture
def check(run: Command) -> Command:
    """The command, for a folder."""
    return partial(run, "check", "--multi-model")


def test_every_archive_has_a_line(tmp_path: Path, check: Command) -> None:
    """Archives at any depth and folders with a model, by name; what is being checked is on standard error."""
    archive(tmp_path / "a.tar.gz", **{"code/inference.py": f"print('imported')\n{MIRROR}"})
    archive(tmp_path / "team" / "x" / "b.tar.gz")
    folder_of_a_model(tmp_path / "unpacked")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "read.me").write_text("no model")
    (tmp_path / ".hidden").mkdir()
    archive(tmp_path / ".hidden" / "c.tar.gz")

    said = check(tmp_path)
    lines = said.out.splitlines()
    assert lines[0].startswith("ok a: m (version 1); script: code/inference.py defines handler; Warning: ")
    assert lines[1].startswith("ok team--x--b: m (version 1); script: none")
    assert lines[2].startswith(
        "ok unpacked/: unpacked (version 1); script: code/inference.py defines handler"
    )
    assert lines[3:] == ["0 of 3 would fail."]
    assert said.err.splitlines()[:2] == ["tfs-proxy: checking a (1 of 3)", "imported"]


FAILING: Mapping[str, tuple[Mapping[str, str | bytes], str]] = {
    "no model": ({"notes.txt": "x"}, "No SavedModel was found in the archive"),
    "a script that can't be imported": (
        {**MODEL, "code/inference.py": f"import nothing_of_this_name\n{MIRROR}"},
        "No module named 'nothing_of_this_name'",
    ),
    "a file outside": ({**MODEL, "../outside": "x"}, "is refused:"),
}


@pytest.mark.parametrize("case", FAILING)
def test_an_archive_that_cannot_be_served_fails_alone(tmp_path: Path, check: Command, case: str) -> None:
    files, words = FAILING[case]
    pack(tmp_path / "bad.tar.gz", files)
    archive(tmp_path / "good.tar.gz")

    bad, good, summary = check(tmp_path, ends=1).out.splitlines()
    assert bad.startswith("fails bad: ")
    assert words in bad
    assert good.startswith("ok good: ")
    assert summary == "1 of 2 would fail."


@pytest.mark.parametrize("name", ["-a", "ä", "a b", "a" * 65])
def test_a_name_that_no_model_can_have(tmp_path: Path, check: Command, name: str) -> None:
    archive(tmp_path / f"{name}.tar.gz")

    said = check(tmp_path, ends=1).out
    assert f"fails {name}.tar.gz: {name}.tar.gz can't be the path of a model" in said


def test_a_warning_fails_if_check_is_strict(tmp_path: Path, check: Command) -> None:
    archive(tmp_path / "a.tar.gz")

    assert "; Warning: m version 1 has no signatures" in check(tmp_path).out
    strict = check(tmp_path, "--strict", ends=1).out
    assert strict.startswith("fails a: Warning: m version 1 has no signatures")


def test_nothing_to_check(tmp_path: Path, check: Command) -> None:
    """No folder, or none with an archive in it, is a mistake of the caller's."""
    assert "it is not a folder" in check(tmp_path / "missing", ends=2).err
    assert "There is no *.tar.gz below" in check(tmp_path, ends=2).err


@pytest.mark.parametrize("words", [["model.tar.gz"], ["--request", "body.json"]])
def test_one_archive_or_many(tmp_path: Path, check: Command, words: list[str]) -> None:
    """A request is for one archive."""
    archive(tmp_path / "a.tar.gz")

    said = check(tmp_path, *words, ends=2).err
    assert "--multi-model takes neither MODEL nor --request" in said


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: Command) -> None:
    """Each archive's folder goes before the next one is opened."""
    home = tmp_path / "home"
    monkeypatch.setenv("TFS_PROXY_HOME", str(home))
    archive(tmp_path / "models" / "a.tar.gz")
    pack(tmp_path / "models" / "b.tar.gz", {"notes.txt": "x"})

    check(tmp_path / "models", ends=1)
    assert list(home.iterdir()) == []


def test_archives_whose_names_meet(tmp_path: Path, check: Command) -> None:
    """A slash is -- in the name, so two paths can have one name: both are named."""
    archive(tmp_path / "team" / "a.tar.gz")
    archive(tmp_path / "team--a.tar.gz")

    line, summary = check(tmp_path, ends=1).out.splitlines()
    assert line.startswith("fails team--a: team--a.tar.gz and team/a.tar.gz would both be the model team--a")
    assert summary == "1 of 1 would fail."


def test_packages_of_a_script_are_not_archives(tmp_path: Path, check: Command) -> None:
    """An unpacked model may have source distributions below code/."""
    folder_of_a_model(tmp_path / "a")
    wheels = tmp_path / "a" / "code" / "wheels"
    wheels.mkdir()
    for name in ("package-1.0.tar.gz", "-package.tar.gz"):
        (wheels / name).write_text("not a model")

    assert check(tmp_path).out.endswith("0 of 1 would fail.\n")
