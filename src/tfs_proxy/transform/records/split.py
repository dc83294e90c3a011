"""Splits the content of an object into records, by SplitType."""

import contextlib
import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, cast

from tfs_proxy.errors import PayloadTooLarge, RequestError
from tfs_proxy.payload.formats.framing import Frame, recordio, tfrecords
from tfs_proxy.transform.failures import BadRecord, ObjectFailed, StorageError
from tfs_proxy.transform.job import GZIP, LINE, RECORDIO, TFRECORD

READ_BYTES = 1 << 20

Split = Callable[["IO[bytes]", int | None], Iterator[Frame]]


class LineTooLong(PayloadTooLarge):
    """A line over the limit; ``offset`` is its position in bytes."""

    def __init__(self, number: int, offset: int, max_bytes: int) -> None:
        super().__init__(f"Line {number}, at byte {offset}, is over the limit of {max_bytes} bytes.")
        self.offset = offset


def lines(stream: "IO[bytes]", max_bytes: int | None = None) -> Iterator[Frame]:
    """Yield every line that is not blank; its frame includes the newline, its payload does not.

    The last line needs no newline. Blank lines are not records, as in this package's JSON-lines and CSV
    readers. Raises LineTooLong before more than ``max_bytes`` of a line are read.
    """
    offset = number = 0
    limit = -1 if max_bytes is None else max_bytes + 2
    while line := stream.readline(limit):
        if not line.isspace():
            number += 1
            payload = line.removesuffix(b"\n")
            if max_bytes is not None and len(payload) > max_bytes:
                raise LineTooLong(number, offset, max_bytes)
            yield Frame(offset, line, payload)
        offset += len(line)


SPLITS: Mapping[str, Split] = {
    LINE: lines,
    TFRECORD: cast("Split", tfrecords),
    RECORDIO: cast("Split", recordio),
}
"""Each splits a stream; memory is bounded by one record of at most the bytes that the second argument allows.

They raise BadInput for damaged framing and PayloadTooLarge; both name the record and its position.
"""


def with_failure_location(frames: Iterable[Frame], name: str) -> Iterator[Frame]:
    """Yield ``frames`` of the object ``name``. Raises ObjectFailed with the position of a damaged record."""
    number, end = 0, 0
    try:
        for frame in frames:
            number += 1
            end = frame.offset + len(frame.framed)
            yield frame
    except RequestError as error:
        offset = error.offset if isinstance(error, LineTooLong) else end
        raise ObjectFailed(BadRecord(name, number + 1, offset, None, str(error))) from error


@contextlib.contextmanager
def open_content(raw: io.RawIOBase, compression: str) -> "Iterator[IO[bytes]]":
    """A buffered stream of an object's content, decompressed if ``compression`` is Gzip.

    In the block, damaged gzip data raise StorageError.
    """
    with io.BufferedReader(raw, READ_BYTES) as stored:
        if compression != GZIP:
            yield stored
            return
        try:
            with io.BufferedReader(gzip.GzipFile(fileobj=stored), READ_BYTES) as content:
                yield content
        except EOFError as error:
            raise StorageError("its gzip data is truncated") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise StorageError(f"it is not gzip data ({error})") from error
