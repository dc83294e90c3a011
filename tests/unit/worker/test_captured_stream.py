"""A streamed answer on its way to the client and into a record."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from tfs_proxy.data.capture.files import CaptureOutcome
from tfs_proxy.data.capture.writer import CaptureWriter
from tfs_proxy.serving.script.runner import Stream
from tfs_proxy.values.deployment import CaptureOptions
from tfs_proxy.worker.capturing import CapturedStream


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
        self.closed = True


Recorded = list[tuple[bytes, bytes]]


@pytest.fixture
def counts() -> Counter[CaptureOutcome]:
    return Counter()


@pytest.fixture
def writer(tmp_path: Path, counts: Counter[CaptureOutcome]) -> CaptureWriter:
    """A writer with room for four bytes, which has not begun to write."""
    return CaptureWriter(CaptureOptions(str(tmp_path), "shop", 100.0, 4), counts.update)


def through(pieces: Pieces, writer: CaptureWriter, body: bytes = b"in") -> tuple[CapturedStream, Recorded]:
    """The stream of a client, and the records so far."""
    recorded: Recorded = []

    def end(body: bytes, answer: bytes) -> None:
        recorded.append((body, answer))

    return CapturedStream(cast("Stream", pieces), writer, body, end), recorded


def test_all_pieces_are_recorded_at_the_end(writer: CaptureWriter) -> None:
    stream, recorded = through(pieces := Pieces(b"a", b"b"), writer)

    assert (next(stream), recorded) == (b"a", [])
    assert list(stream) == [b"b"]
    assert recorded == [(b"in", b"ab")]
    stream.close()
    assert pieces.closed


def test_too_many_bytes_are_passed_on_and_not_kept(
    writer: CaptureWriter, counts: Counter[CaptureOutcome]
) -> None:
    """The record is given up, the answer is not."""
    stream, recorded = through(Pieces(b"a", b"bc", b"d"), writer)

    assert list(stream) == [b"a", b"bc", b"d"]
    assert recorded == []
    writer.report()
    assert counts == {CaptureOutcome.TOO_LARGE: 1}


def test_streams_share_the_room_of_their_writer(
    writer: CaptureWriter, counts: Counter[CaptureOutcome]
) -> None:
    """Many at once hold no more than one; room that one of them leaves is for others."""
    first, recorded = through(Pieces(b"a"), writer)
    second, nothing = through(Pieces(b"b", b"c"), writer, b"i")
    next(first)

    assert list(second) == [b"b", b"c"]
    assert (list(first), nothing, recorded) == ([], [], [(b"in", b"a")])
    third, later = through(Pieces(b"ab"), writer)
    assert list(third) == [b"ab"]
    assert later == [(b"in", b"ab")]
    writer.report()
    assert counts == {CaptureOutcome.DROPPED: 1}


def test_an_answer_that_breaks_off_is_not_recorded(writer: CaptureWriter) -> None:
    broken, recorded = through(Pieces(b"a", ConnectionResetError()), writer)
    with pytest.raises(ConnectionResetError):
        list(broken)
    broken.close()
    left, nothing = through(pieces := Pieces(b"a", b"b"), writer)
    next(left)
    left.close()

    assert recorded == nothing == []
    assert pieces.closed
    assert writer.take(4)
