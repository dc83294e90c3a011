"""A streamed answer on its way to the client and into a record."""

from collections.abc import Iterator
from typing import cast

import pytest

from tfs_proxy.script.stream import Stream
from tfs_proxy.web.capturing import CapturedStream


class Pieces:
    """A stream that may break off."""

    def __init__(self, *pieces: bytes | Exception) -> None:
        self._pieces = iter(pieces)
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        piece = next(self._pieces)
        if isinstance(piece, Exception):
            raise piece
        return piece

    def close(self) -> None:
        """Note it."""
        self.closed = True


def through(pieces: Pieces, room: int) -> tuple[CapturedStream, list[bytes | None]]:
    """The stream that a client gets, and what was recorded so far."""
    recorded: list[bytes | None] = []
    return CapturedStream(cast("Stream", pieces), room, recorded.append), recorded


def test_all_pieces_are_recorded_at_the_end() -> None:
    """Not before, and the client gets each of them at once."""
    stream, recorded = through(pieces := Pieces(b"a", b"b"), 2)

    assert (next(stream), recorded) == (b"a", [])
    assert list(stream) == [b"b"]
    assert recorded == [b"ab"]
    stream.close()
    assert pieces.closed


def test_too_many_bytes_are_passed_on_and_not_kept() -> None:
    """The record is given up, the answer is not."""
    stream, recorded = through(Pieces(b"a", b"bc", b"d"), 2)

    assert list(stream) == [b"a", b"bc", b"d"]
    assert recorded == [None]


def test_an_answer_that_breaks_off_is_not_recorded() -> None:
    """By its script, or by its client."""
    broken, recorded = through(Pieces(b"a", ConnectionResetError()), 10)
    with pytest.raises(ConnectionResetError):
        list(broken)
    left, nothing = through(pieces := Pieces(b"a", b"b"), 10)
    next(left)
    left.close()

    assert recorded == nothing == []
    assert pieces.closed
