"""A folder becomes an archive whose bytes depend on its files alone."""

import os
import tarfile
from pathlib import Path

import pytest

from tfs_proxy.model.write import write_archive
from tfs_proxy.values.errors import ArchiveError


def folder_of(root: Path, *, changed: int) -> Path:
    """A folder with files of various modes, all changed at this time."""
    (root / "m" / "1" / "variables").mkdir(parents=True)
    (root / "m" / "1" / "saved_model.pb").write_bytes(b"graph" * 1000)
    (root / "code").mkdir()
    (root / "code" / "run.sh").write_text("#!/bin/sh\n")
    (root / "code" / "run.sh").chmod(0o700)
    for path in [root, *root.rglob("*")]:
        os.utime(path, (changed, changed))
    return root


def test_same_files_same_bytes(tmp_path: Path) -> None:
    first = folder_of(tmp_path / "a", changed=1_000_000_000)
    second = folder_of(tmp_path / "b", changed=1_700_000_000)
    (second / "m" / "1" / "saved_model.pb").chmod(0o600)

    write_archive(first, tmp_path / "a.tar.gz")
    write_archive(second, tmp_path / "other name.tar.gz")

    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "other name.tar.gz").read_bytes()


def test_members(tmp_path: Path) -> None:
    """Sorted, of nobody, and readable for everybody; what could be run still can."""
    write_archive(folder_of(tmp_path / "a", changed=1_000_000_000), tmp_path / "a.tar.gz")

    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        members = archive.getmembers()
    assert [(member.name, oct(member.mode)) for member in members] == [
        ("code", "0o755"),
        ("code/run.sh", "0o755"),
        ("m", "0o755"),
        ("m/1", "0o755"),
        ("m/1/saved_model.pb", "0o644"),
        ("m/1/variables", "0o755"),
    ]
    assert {(member.uid, member.gid, member.uname, member.mtime) for member in members} == {
        (0, 0, "", 315_532_800)
    }


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    """The old archive is only replaced by a whole new one, and no partial file stays."""
    target = tmp_path / "a.tar.gz"
    target.write_text("old")

    def stop(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_archive(folder_of(tmp_path / "a", changed=1), target, stop)

    assert target.read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"a", "a.tar.gz"}


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """The error names the archive and the reason."""
    with pytest.raises(ArchiveError, match=r"no/a\.tar\.gz can't be written: No such file or directory"):
        write_archive(folder_of(tmp_path / "a", changed=1), tmp_path / "no" / "a.tar.gz")
