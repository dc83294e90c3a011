"""An input's records, one after the other, and the batches that they are sent in."""

import contextlib
import gzip
import io
import itertools
import logging
import re
import shlex
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import IO, cast

from msgspec import Struct, field

from tfs_proxy.data.capture import BEGINNING_BYTES, ENDING, CapturedRequest, captured_request, is_capture
from tfs_proxy.data.formats.csv_records import HEADER_HINT, NUMBER, Dialect, csv_dialect, csv_rows
from tfs_proxy.data.formats.framing import Frame, recordio, tfrecords
from tfs_proxy.data.registry import format_of, parse_media_type
from tfs_proxy.data.serving_json.documents import BYTE_ORDER_MARK
from tfs_proxy.transform.job import (
    ABSENT,
    AUTO,
    GZIP,
    LINE,
    MULTI,
    NONE,
    PRESENT,
    RECORDIO,
    SINGLE,
    TFRECORD,
    CsvHeader,
    ExecutionPlan,
    Job,
)
from tfs_proxy.transform.jsonpath import JsonPath, Missing
from tfs_proxy.transform.run_statistics import BadRecord, ObjectFailed, StorageError
from tfs_proxy.values.errors import BadInput, PayloadTooLarge, RequestError, UnsupportedMediaType
from tfs_proxy.values.names import are_names_of
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES
from tfs_proxy.wire.media_types import BYTES, CSV, JSON, TF_EXAMPLE, TF_RECORD, bare

log = logging.getLogger(__name__)

READ_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"

Split = Callable[["IO[bytes]", int | None], Iterator[Frame]]


class LineTooLong(PayloadTooLarge):
    """A line over the limit; ``offset`` is its position in bytes, ``line`` its number."""

    def __init__(self, line: int, offset: int, max_bytes: int) -> None:
        super().__init__(f"the record is over the limit of {max_bytes} bytes: raise MaxPayloadInMB")
        self.line = line
        self.offset = offset


def lines(stream: "IO[bytes]", max_bytes: int | None = None) -> Iterator[Frame]:
    """Yield every line that is not blank; its frame includes the newline, its payload does not.

    The last line needs no newline. Blank lines are not records, as in this package's JSON-lines and CSV
    readers. Raises LineTooLong before more than ``max_bytes`` of a line are read.
    """
    offset = 0
    limit = -1 if max_bytes is None else max_bytes + 2
    for number in itertools.count(1):
        if not (line := stream.readline(limit)):
            return
        if not line.isspace():
            payload = line.removesuffix(b"\n")
            if max_bytes is not None and len(payload) > max_bytes:
                raise LineTooLong(number, offset, max_bytes)
            yield Frame(offset, line, payload, number)
        offset += len(line)


SPLITS: Mapping[str, Split] = {
    LINE: lines,
    TFRECORD: cast("Split", tfrecords),
    RECORDIO: cast("Split", recordio),
}
"""Each splits a stream; memory is bounded by one record of at most the bytes that the second argument allows.

They raise BadInput for damaged framing and PayloadTooLarge; both name the record and its position.
"""


def framing_hint(job: Job, plan: ExecutionPlan) -> str:
    """Name the cure if examples are sent in frames, which their type does not have; else ""."""
    if (job.split_type, plan.strategy) != (TFRECORD, MULTI) or job.content_type != TF_EXAMPLE:
        return ""
    return (
        f" ({MULTI} sends TFRecord's frames, and {TF_EXAMPLE} has none: give --strategy {SINGLE} or "
        f"--content-type {TF_RECORD})"
    )


def with_failure_location(frames: Iterable[Frame], name: str) -> Iterator[Frame]:
    """Yield ``frames`` of the object ``name``. Raises ObjectFailed with the position of a damaged record."""
    number = 0
    end = 0
    try:
        for frame in frames:
            number += 1
            end = frame.offset + len(frame.framed)
            yield frame
    except RequestError as error:
        line, offset = (error.line, error.offset) if isinstance(error, LineTooLong) else (None, end)
        sentence = without_place(str(error), number + 1)
        raise ObjectFailed(BadRecord(name, sentence, number + 1, offset, line=line)) from error


def without_place(sentence: str, number: int) -> str:
    """A sentence about record ``number`` without this number, which is another one in the object.

    Without the advice on a header, too: the job has a flag for that, and says so where line 1 is refused.
    """
    return re.sub(
        rf"^(?:TFRecord|RecordIO record|Record|Row|Line) {number}\b(?:, at byte \d+,)?",
        "the record",
        sentence.replace(HEADER_HINT, ""),
    )


@contextlib.contextmanager
def open_content(raw: io.RawIOBase, job: Job) -> "Iterator[IO[bytes]]":
    """A buffered stream of an object's content, decompressed if the job's compression is Gzip.

    In the block, damaged gzip data raise StorageError, and so do unexpected ones.
    """
    with io.BufferedReader(raw, READ_BYTES) as stored:
        if job.compression != GZIP:
            # Only a script can read a whole object that is gzip data.
            known = format_of(bare(job.content_type or JSON))
            may_be_gzip = job.split_type == NONE and (known is None or known.name == BYTES)
            if stored.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC) and not may_be_gzip:
                raise StorageError("it is gzip data: give --compression Gzip (CompressionType in a job)")
            yield stored
            return
        try:
            with io.BufferedReader(gzip.GzipFile(fileobj=stored), READ_BYTES) as content:
                yield content
        except EOFError as error:
            raise StorageError("its gzip data is truncated") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise StorageError(f"it is not gzip data ({error})") from error


def asks_model(job: Job) -> bool:
    """True if the model's inputs decide about a header, since neither flag nor ContentType do."""
    dialect = _dialect(job)
    return dialect is not None and job.csv_header == AUTO and dialect.header is None


def header_of(job: Job, inputs: Sequence[str]) -> CsvHeader | None:
    """The header that an object may begin with; ``inputs`` are the model's, () if they are not known.

    If the model decides, it is a line with the names of all its inputs.
    """
    dialect = _dialect(job)
    if dialect is None or job.csv_header == ABSENT:
        return None
    if asks_model(job):
        return CsvHeader(tuple(inputs), dialect.delimiter, job.input_filter) if inputs else None
    return CsvHeader(id_column=job.id_column) if job.csv_header == PRESENT or dialect.header else None


def _cells(header: CsvHeader, line: bytes) -> list[str]:
    """The cells of a line that the filter leaves; none if it is no line of CSV."""
    try:
        cells = next(csv_rows(line.removeprefix(BYTE_ORDER_MARK), header.delimiter), [])
        left = JsonPath(header.input_filter)(cells)
    except (BadInput, Missing):
        return []
    return [cell.strip() for cell in (left if isinstance(left, list) else [left])]


def _dialect(job: Job) -> Dialect | None:
    """Dialect of the job's CSV lines; None for other input, and for a ContentType that servers refuse."""
    try:
        return csv_dialect(parse_media_type(job.content_type).parameters) if job.record_type == CSV else None
    except UnsupportedMediaType:
        return None


class MiniBatch(Struct):
    """Records that are sent together, in one piece of memory because an object per record would be large."""

    first: int
    """Number of the first record, from 1; 0 for a whole object."""

    body: bytes
    """Records one behind the other, as they are sent."""

    offsets: "array[int]"
    """Position of each record in the object, in bytes."""

    ends: "array[int]"
    """End of each record in ``body``, in bytes."""

    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers by name that replace those of the job."""

    csv_header: bytes = b""
    """Line that stands before the records in each request; empty without one."""

    lines: "array[int]" = field(default_factory=lambda: array("Q"))
    """Number of each record's line, from 1; empty if records are no lines."""

    def __len__(self) -> int:
        return len(self.ends)

    def records(self) -> list[bytes]:
        starts = [0, *self.ends[:-1]]
        return [self.body[start:end] for start, end in zip(starts, self.ends, strict=True)]

    def part(self, begin: int, end: int) -> "MiniBatch":
        """Records ``begin`` to ``end`` (from 0, ``end`` excluded) as a batch of their own."""
        start = self.ends[begin - 1] if begin else 0
        return MiniBatch(
            first=self.first + begin,
            body=self.body[start : self.ends[end - 1]],
            offsets=self.offsets[begin:end],
            ends=array("Q", [record_end - start for record_end in self.ends[begin:end]]),
            headers=self.headers,
            csv_header=self.csv_header,
            lines=self.lines[begin:end],
        )

    def failure(self, name: str, error: str, status: int | None = None) -> BadRecord:
        """The failure of its first record, in the object ``name``."""
        if not self.first:
            return BadRecord(name, error, status=status)
        line = self.lines[0] if self.lines else None
        return BadRecord(name, error, self.first, self.offsets[0], status, line)


class OpenBatch:
    """Batch to which records are added; ``first`` is the number of the first."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.body = bytearray()
        self.offsets = array("Q")
        self.ends = array("Q")
        self.lines = array("Q")

    def add(self, frame: Frame, text: bytes | memoryview) -> None:
        """Add a record, of which ``text`` is sent."""
        self.body += text
        self.offsets.append(frame.offset)
        self.ends.append(len(self.body))
        if frame.line is not None:
            self.lines.append(frame.line)

    def closed(self) -> MiniBatch:
        """Make the batch to send."""
        return MiniBatch(self.first, bytes(self.body), self.offsets, self.ends, lines=self.lines)


def pack(frames: Iterable[Frame], strategy: str, max_bytes: int | None, name: str) -> Iterator[MiniBatch]:
    """Pack by BatchStrategy (docs/reference/sagemaker.md): one record without its framing, or as many as fit.

    Framing and checksums count. Raises ObjectFailed, with the object's ``name``, if a record is too large.
    """
    batch = OpenBatch(1)
    for number, frame in enumerate(frames, 1):
        text = frame.payload if strategy == SINGLE else frame.framed
        if max_bytes is not None and len(text) > max_bytes:
            refusal = (
                f"the record has {len(text)} bytes to send: raise MaxPayloadInMB, which allows {max_bytes}"
            )
            raise ObjectFailed(BadRecord(name, refusal, number, frame.offset, line=frame.line))
        is_full = max_bytes is not None and len(batch.body) + len(text) > max_bytes
        if batch.ends and (is_full or strategy == SINGLE):
            yield batch.closed()
            batch = OpenBatch(number)
        batch.add(frame, text)
    if batch.ends:
        yield batch.closed()


def batches_of(stream: "IO[bytes]", split_type: str, plan: ExecutionPlan, name: str) -> Iterator[MiniBatch]:
    """The batches of the object ``name``, whose memory is bounded by one batch and one record.

    Raises ObjectFailed with the position of a record that is damaged or too large.
    """
    frames = SPLITS[split_type](stream, plan.payload_bytes)
    limit = plan.payload_bytes
    csv_header = b""
    if plan.header is not None:
        first = list(with_failure_location(islice(frames, 2), name))
        names = set(plan.header.names)
        if first and (not names or are_names_of(names, _cells(plan.header, bytes(first[0].payload)))):
            csv_header = bytes(first.pop(0).framed)
            column = plan.header.id_column
            if column is not None and column not in (cells := _cells(plan.header, csv_header)):
                sentence = f"the header has no column {column}, which --id-column names: {', '.join(cells)}"
                raise ObjectFailed(BadRecord(name, sentence))
            limit = None if limit is None else limit - len(csv_header)
        elif first:
            rows = [_cells(plan.header, bytes(frame.payload)) for frame in first]
            have_numbers = [any(map(NUMBER.fullmatch, row)) for row in rows]
            if not names.isdisjoint(rows[0]) or have_numbers == [False, True]:
                hint = "give --csv-header present if it is a header"
                others = [cell for cell in rows[0] if cell not in names]
                ids = [cell for cell in others if len(others) == 1 or cell.lower().endswith("id")]
                if ids:
                    hint += f", or --id-column {shlex.quote(ids[0])} if that column is not for the model"
                log.warning("%s: line 1 is sent as a record: %s", name, hint)
        frames = chain(first, frames)
    for batch in pack(with_failure_location(frames, name), plan.strategy, limit, name):
        batch.csv_header = csv_header
        yield batch


def whole_object(body: bytes) -> MiniBatch:
    return MiniBatch(0, body, array("Q", [0]), array("Q", [len(body)]))


def is_captured(open_raw: Callable[[], io.RawIOBase], job: Job, name: str) -> bool:
    """True if the object ``name`` holds captured requests, and the job does not say how to read it.

    One that can't be read fails later.
    """
    if job.content_type is None and job.split_type == NONE and name.endswith(ENDING):
        with contextlib.suppress(StorageError), open_content(open_raw(), job) as stream:
            return is_capture(name, stream.read(BEGINNING_BYTES))
    return False


def captured_batches(stream: "IO[bytes]", max_bytes: int | None, name: str) -> Iterator[MiniBatch]:
    """Each request of the object ``name``; raises ObjectFailed with the position of one that is damaged."""
    for number, frame in enumerate(lines(stream), 1):
        request = _request(frame, number, name)
        if request is None:
            return
        if max_bytes is not None and len(request.body) > max_bytes:
            text = f"it has {len(request.body)} bytes to send: raise MaxPayloadInMB, which allows {max_bytes}"
            raise ObjectFailed(BadRecord(name, text, number, frame.offset))
        headers = {"Content-Type": request.content_type, CUSTOM_ATTRIBUTES: request.custom_attributes}
        yield MiniBatch(
            number,
            request.body,
            array("Q", [frame.offset]),
            array("Q", [len(request.body)]),
            {header: value for header, value in headers.items() if value is not None},
        )


def _request(frame: Frame, number: int, name: str) -> CapturedRequest | None:
    """The request of a line; None for a last line whose writer was killed."""
    try:
        return captured_request(bytes(frame.framed))
    except BadInput as error:
        raise ObjectFailed(BadRecord(name, str(error), number, frame.offset)) from error
