"""The files that `warmup` leaves in a model: all of them, or none."""

from pathlib import Path

import pytest

from tfs_proxy.errors import ArchiveError
from tfs_proxy.packing.warmup import write_files


def test_files_appear_together(tmp_path: Path) -> None:
    """A version whose folder can't be written to leaves the others as they were."""
    first, second = (tmp_path / name / "assets.extra" / "requests" for name in "12")
    first.parent.mkdir(parents=True)
    first.write_bytes(b"old")
    second.parent.parent.write_bytes(b"a file, and no folder")

    with pytest.raises(ArchiveError, match="can't be written"):
        write_files({first: b"new", second: b"new"})
    assert [path.name for path in first.parent.iterdir()] == ["requests"]
    assert first.read_bytes() == b"old"

    second.parent.parent.unlink()
    second.parent.parent.mkdir()
    write_files({first: b"new", second: b"new"})
    assert first.read_bytes() == second.read_bytes() == b"new"
