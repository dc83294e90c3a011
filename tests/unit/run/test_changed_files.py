"""Changes of models and of code below a folder, and when one is whole."""

import importlib.util
import os
from pathlib import Path

import pytest

from tfs_proxy.run.reloading import (
    changed_files,
    forget_bytecode,
    look_at_models,
    snapshot_of_folder,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a model of one version, and a script."""
    put(tmp_path / "m" / "1" / "saved_model.pb")
    put(tmp_path / "m" / "1" / "variables" / "variables.index")
    put(tmp_path / "code" / "inference.py")
    return tmp_path


def put(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


@pytest.mark.parametrize(
    ("name", "is_change"),
    [
        *(
            (name, True)
            for name in ("m/2/saved_model.pb", "deep/in/n/1/saved_model.pb", "m/1/assets/labels.txt")
        ),
        *((name, False) for name in ("README", "code/inference.py", "code/lib/saved_model.pb")),
        *((name, False) for name in ("m/.2/saved_model.pb", "m/2/variables/x")),
    ],
)
def test_what_belongs_to_a_model_is_a_change(folder: Path, name: str, is_change: bool) -> None:
    """A version at any depth, and files in one; not code, hidden copies and versions without a graph yet."""
    before = look_at_models(folder)
    put(folder / name)
    (folder / "code" / "inference.py").write_text("x = 1")

    assert changed_files(before, look_at_models(folder)) == ([folder / name] if is_change else [])


def test_a_folder_with_an_archive_is_that_archive(folder: Path) -> None:
    """`fetch` serves the archive, whatever lies beside it; what is not there has no files."""
    assert look_at_models(folder / "missing") == {}
    archive = folder / "model.tar.gz"
    archive.touch()
    before = look_at_models(folder)
    put(folder / "m" / "2" / "saved_model.pb")
    assert look_at_models(folder) == before
    (folder / "new").write_text("2")
    (folder / "new").rename(archive)

    assert changed_files(before, look_at_models(folder)) == [archive]


@pytest.mark.parametrize(
    "name",
    ["__pycache__/x.cpython-313.pyc", ".git/index", ".x.py.swp", "x.py~", "#x.py#", "4913", "x.py.tmp"],
)
def test_caches_hidden_and_temporary_files_are_no_change(tmp_path: Path, name: str) -> None:
    """Python, version control and editors write them beside the code."""
    before = snapshot_of_folder(tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()

    assert changed_files(before, snapshot_of_folder(tmp_path)) == []


def test_new_other_and_deleted_files_are_changes(tmp_path: Path) -> None:
    (tmp_path / "gone.py").touch()
    (tmp_path / "other.py").write_text("1")
    before = snapshot_of_folder(tmp_path)
    times = ((tmp_path / "other.py").stat().st_mtime_ns,) * 2
    (tmp_path / "gone.py").unlink()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "new.py").touch()
    (tmp_path / "beside.tmp").write_text("2")
    os.utime(tmp_path / "beside.tmp", ns=times)
    (tmp_path / "beside.tmp").rename(tmp_path / "other.py")

    changed = changed_files(before, snapshot_of_folder(tmp_path))

    assert changed == [tmp_path / name for name in ("gone.py", "lib/new.py", "other.py")]


def test_loops_of_links_and_links_to_nowhere_end(tmp_path: Path) -> None:
    """A link to the folder itself, and one whose target is missing."""
    (tmp_path / "x.py").touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "nowhere").symlink_to("missing")

    assert set(snapshot_of_folder(tmp_path)) == {tmp_path / "x.py"}


def test_the_bytecode_of_changed_modules_is_removed(tmp_path: Path) -> None:
    """Python takes two versions of the same size within a second for one."""
    module, kept = tmp_path / "x.py", tmp_path / "y.py"
    caches = [Path(importlib.util.cache_from_source(path)) for path in (module, kept)]
    caches[0].parent.mkdir()
    for cache in caches:
        cache.touch()

    forget_bytecode([module, tmp_path / "words.txt"])

    assert [cache.exists() for cache in caches] == [False, True]
