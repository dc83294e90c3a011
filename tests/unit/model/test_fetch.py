"""What MODEL may be on this machine, and what an address in S3 means before anything is fetched."""

from pathlib import Path

import pytest

from tfs_proxy.model.fetch import fetch
from tfs_proxy.model.progress import ProgressLog
from tfs_proxy.model.s3 import StoredObject, check_size, relative_paths
from tfs_proxy.values.errors import ArchiveError, NoArchive
from tfs_proxy.values.layout import Workspace
from tfs_proxy.wire.s3_client import parse_address


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "run"
    root.mkdir()
    return Workspace(root)


def test_a_folder_that_docker_made_for_a_missing_archive_is_told(
    tmp_path: Path, workspace: Workspace
) -> None:
    """A bind mount of a file that is not there leaves an empty folder of its name."""
    (tmp_path / "mounted/model.tar.gz").mkdir(parents=True)
    with pytest.raises(ArchiveError, match=r"model\.tar\.gz is an empty folder\. Docker makes one if"):
        fetch(str(tmp_path / "mounted"), workspace)


def test_an_empty_folder_is_named(tmp_path: Path, workspace: Workspace) -> None:
    """A mount that came up empty is told apart from one without models."""
    (tmp_path / "void").mkdir()
    with pytest.raises(ArchiveError, match="void is empty"):
        fetch(str(tmp_path / "void"), workspace)


@pytest.mark.parametrize("address", ["s3://", "s3:///key", "s3://b", "s3://-bad/key", "s3://bu cket/key"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(ArchiveError, match=r"must be s3://BUCKET/KEY"):
        parse_address(address)


def keys(*names: str, size: int = 1) -> list[StoredObject]:
    return [StoredObject(name, size) for name in names]


@pytest.mark.parametrize(
    "key", ["p/../x", "p/a/../../x", "p//etc/passwd", "p/./x", "p/a\0b", "p/" + "n" * 256, "p/a/"]
)
def test_keys_that_are_no_paths(key: str) -> None:
    """A key that would escape, or that no file system can hold, is named and refused."""
    with pytest.raises(ArchiveError, match="not the path of a file"):
        relative_paths(keys(key), "p/", "s3://b/p/")


def test_a_key_that_is_file_and_folder() -> None:
    """S3 can hold both, a disk can't."""
    with pytest.raises(ArchiveError, match=r"a/b is both"):
        relative_paths(keys("p/a/b", "p/a/b/c"), "p/", "s3://b/p/")


def test_limits_hold_before_the_download(monkeypatch: pytest.MonkeyPatch) -> None:
    """Number and bytes of the objects are known from the listing."""
    monkeypatch.setattr("tfs_proxy.model.s3.MAX_ARCHIVE_BYTES", 100)
    with pytest.raises(ArchiveError, match="over 100000 objects"):
        check_size([StoredObject("a", 0)] * 100_001, "s3://b/")
    with pytest.raises(ArchiveError, match="120 bytes"):
        check_size(keys("a", "b", size=60), "s3://b/")
    with pytest.raises(ArchiveError, match="has no objects"):
        check_size([], "s3://b/")


def test_progress_is_a_line_every_few_seconds() -> None:
    """Short work says nothing; long work says MB and percent, and how long it took."""
    now = [0.0]
    lines: list[str] = []
    progress = ProgressLog("Unpacking x", clock=lambda: now[0], write=lines.append)
    for second in range(0, 12, 2):
        now[0] = float(second)
        progress(second * 1024**2, 20 * 1024**2)
    progress.finish()
    assert lines == ["Unpacking x: 6 of 20 MB, 30%", "Unpacking x: done after 10 s"]


@pytest.mark.parametrize("name", ["m.keras", "m.h5"])
def test_a_model_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04")

    with pytest.raises(ArchiveError, match=rf"is a model, .*`tfs-proxy pack .*{name}`"):
        fetch(str(tmp_path / name), Workspace(tmp_path / "w"))


def test_a_missing_path_is_named(tmp_path: Path, workspace: Workspace) -> None:
    """The sentence names the path and what it could be."""
    with pytest.raises(NoArchive, match=r"no file or folder .*/nowhere: MODEL must be"):
        fetch(str(tmp_path / "nowhere"), workspace)
