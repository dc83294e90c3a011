"""What counts as a change of the code below a folder."""

import importlib.util
import os
from pathlib import Path

import pytest

from tfs_proxy.run.reloading.files import changed_files, forget_bytecode, snapshot_of_folder


@pytest.mark.parametrize(
    "name",
    ["__pycache__/x.cpython-313.pyc", ".git/index", ".x.py.swp", "x.py~", "#x.py#", "4913", "x.py.tmp"],
)
def test_caches_hidden_and_temporary_files_are_no_change(tmp_path: Path, name: str) -> None:
    """Python, version control and editors write them beside the code."""
    before = snapshot_of_folder(tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()

    assert changed_files(before, snapshot_of_folder(tmp_path)) == ()


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

    assert changed == tuple(tmp_path / name for name in ("gone.py", "lib/new.py", "other.py"))


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
