"""A file of lines: many write, one reads, and what has been read needs no disk."""

import os
from collections.abc import Callable
from pathlib import Path

from tfs_proxy.observe.line_file import HOLE_BYTES, LineReader, appending


def read_all(reader: LineReader) -> list[bytes]:
    """The lines that can be read now."""
    return [line for chunk in reader.chunks() for line in chunk.split(b"\n")]


def test_what_was_read_takes_no_room(tmp_path: Path) -> None:
    """The file keeps its length, and loses its blocks; without holes it is read all the same."""

    def refuse(_descriptor: int, _offset: int, _length: int) -> None:
        """A file system without holes."""

    ways: tuple[Callable[[int, int, int], None] | None, ...] = (None, refuse)
    blocks = []
    for number, make_hole in enumerate(ways):
        path = tmp_path / str(number)
        reader, writer = LineReader(path, make_hole), appending(path)
        for _ in range(4 * HOLE_BYTES // 64):
            os.write(writer, b"x" * 63 + b"\n")
        assert len(read_all(reader)) == 4 * HOLE_BYTES // 64
        blocks.append(path.stat().st_blocks * 512)

    assert blocks[0] <= HOLE_BYTES < 4 * HOLE_BYTES <= blocks[1]


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    """A reader that comes between two writes."""
    reader, writer = LineReader(tmp_path / "lines"), appending(tmp_path / "lines")
    os.write(writer, b"one\ntw")
    assert read_all(reader) == [b"one"]
    os.write(writer, b"o\n")

    assert read_all(reader) == [b"two"]
