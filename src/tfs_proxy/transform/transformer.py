"""Batches -> outcomes: a job's DataProcessing, and --on-error, which finds the bad records of a batch."""

import base64
import contextlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson
from msgspec import Struct, field

from tfs_proxy.data.formats.csv_records import csv_rows
from tfs_proxy.data.registry import format_of
from tfs_proxy.data.serving_json.documents import BYTE_ORDER_MARK, in_one_line
from tfs_proxy.transform.bad_records import BadLimit, BadRecordCounts
from tfs_proxy.transform.batches import MiniBatch, whole_object, without_place
from tfs_proxy.transform.job import GZIP, INPUT, LINE, NONE, Job
from tfs_proxy.transform.jsonpath import JsonPath, Missing
from tfs_proxy.transform.run_statistics import BadRecord, ObjectFailed
from tfs_proxy.transform.sender import Refused, Sender
from tfs_proxy.values.errors import BadInput
from tfs_proxy.wire.http_messages import HttpResponse
from tfs_proxy.wire.media_types import CSV, JSON, JSON_LINES, bare

OUTPUT_KEY = "SageMakerOutput"
INPUT_KEY = "SageMakerInput"
_CELL = re.compile(r'("(?:[^"]|"")*"|(?:[^",][^,]*)?)(,|$)')

Values = list[Any]


class Unprocessable(Exception):
    """A record or an answer that filters or joins can't be applied to."""


class Untouched:
    """Bodies and answers without filters and joins: both pass as they are.

    But AssembleWith Line ends each answer with a newline, and makes one line of a JSON document.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._has_lines = job.split_type == LINE and _lines_of(job.content_type) != ""
        self._ending = b"\n" if job.assemble_with == LINE else b""

    def request(self, batch: MiniBatch) -> bytes:
        """The header, if there is one, and the records."""
        return batch.csv_header + batch.body

    def substitute(self, _batch: MiniBatch, error: str) -> bytes:
        """A bad record's line or document: the error.

        JSON quotes the server's ``error``; other types have ERROR, as AWS recommends.
        """
        job = self._job
        text = b"ERROR"
        if "json" in bare(job.accept or job.content_type):
            text = _encode({"error": error.encode("utf-8", "replace").decode()})
        return text + b"\n" if LINE in {job.assemble_with, job.split_type} else text

    def header(self, _batch: MiniBatch, _width: int = 0) -> bytes:
        """The line before an object's first record: none."""
        return b""

    def rows(self, batch: MiniBatch, answer: HttpResponse) -> int:
        """The rows of an answer if both sides are CSV or JSON lines; else as many as there are records."""
        body = answer.body
        if not self._has_lines or (body and body.count(b"\n", 0, -1) + 1 == len(batch)):
            return len(batch)
        kinds = {_lines_of(self._job.accept), _lines_of(answer.header("Content-Type"))}
        rows = len(batch) if kinds == {""} else sum(1 for line in body.split(b"\n") if line.strip())
        if rows > len(batch):  # one may take several lines
            with contextlib.suppress(BadInput, ValueError):
                return sum(1 for _ in csv_rows(body, ",")) if CSV in kinds else len([json.loads(body)])
        return rows

    def output(self, _batch: MiniBatch, answer: HttpResponse) -> bytes:
        """The answers, unread, but as lines."""
        text = answer.body
        if self._ending and b"\n" in text and "json" in bare(answer.header("Content-Type")):
            with contextlib.suppress(Unprocessable):
                text = in_one_line(_read_json(text))  # several documents stay as they are
        return self._ended(text)

    def _ended(self, text: bytes) -> bytes:
        return text if text.endswith(self._ending) else text + self._ending


class Processed(Untouched):
    """SageMaker's DataProcessing: InputFilter, the model, JoinSource, OutputFilter, in this order.

    docs/reference/sagemaker.md has the rules. CSV that is joined to lines with a header begins with one
    unless ``titles``, those of the answers' columns as far as they are known, are None.
    """

    def __init__(self, job: Job, titles: Sequence[str] | None) -> None:
        super().__init__(job)
        self._titles = titles
        self._input_filter = JsonPath(job.input_filter)
        self._output_filter = JsonPath(job.output_filter)
        self._read, self._write, self._join = _CODECS[job.record_type]
        self._read_answer, self._write_answer, _ = _CODECS[job.answer_type or job.record_type]

    def request(self, batch: MiniBatch) -> bytes:
        """The header, if there is one, and the records, filtered.

        Raises Unprocessable naming the first that the filter does not fit.
        """
        if self._job.joins:
            self._read(batch.body)  # raises: a record that can't be joined later must not be sent
        body = super().request(batch)
        if self._job.id_column is not None:
            at = self._place_of_id(batch)
            body = self._write([[*row[:at], *row[at + 1 :]] for row in self._read(body)])
        if self._input_filter.is_identity:
            return body
        return self._write(_filtered(self._input_filter, self._read(body)))

    def substitute(self, batch: MiniBatch, error: str) -> bytes:
        """A bad record's line or document: the error, joined to the record if that can be read."""
        text = super().substitute(batch, error)
        with contextlib.suppress(Unprocessable):
            if self._job.joins:
                text = self._lines(self._joined(self._kept(batch, batch.body), self._read_answer(text)))
        return text

    def header(self, batch: MiniBatch, width: int = 0) -> bytes:
        """The line before an object's first record; answers have ``width`` cells, if that is known."""
        if self._titles is None or not (self._job.joins and batch.csv_header and batch.first == 1):
            return b""
        titles = list(self._titles) or [OUTPUT_KEY]
        if width and width != len(titles):
            titles = [OUTPUT_KEY] * width
        with contextlib.suppress(Unprocessable):
            return self._lines(self._joined(self._kept(batch, batch.csv_header), [titles]))
        return b""

    def output(self, batch: MiniBatch, answer: HttpResponse) -> bytes:
        """The answers, joined to their records and filtered. Raises Unprocessable.

        If the job neither joins nor filters answers, they are untouched.
        """
        if not self._job.joins and self._output_filter.is_identity:
            return super().output(batch, answer)
        answers = self._read_answer(answer.body)
        if not self._job.joins:
            return self._lines(answers)
        rows = self._lines(self._joined(self._kept(batch, batch.body), answers))
        return self.header(batch, len(answers[0])) + rows

    def _kept(self, batch: MiniBatch, text: bytes) -> Values:
        """The records of ``text`` or, without a join of them, their ids, to which the answers are added."""
        records = self._read(text.removeprefix(BYTE_ORDER_MARK))
        if self._job.join == INPUT or self._job.id_column is None:
            return records
        at = self._place_of_id(batch)
        return [[row[at] if at < len(row) else ""] for row in records]

    def _place_of_id(self, batch: MiniBatch) -> int:
        (header,) = self._read(batch.csv_header.removeprefix(BYTE_ORDER_MARK))
        return [cell.strip().strip('"') for cell in header].index(str(self._job.id_column))

    def _lines(self, answers: Values) -> bytes:
        return self._ended(self._write_answer(_filtered(self._output_filter, answers)))

    def _joined(self, records: Values, answers: Values) -> Values:
        if len(records) != len(answers):
            raise Unprocessable(
                f"{len(records)} record(s) got {len(answers)} answer(s): a join needs one for each, "
                f"in {CSV} or {JSON_LINES} as the input is"
            )
        return [self._join(record, answer) for record, answer in zip(records, answers, strict=True)]


def processing_of(job: Job, titles: Sequence[str] | None = None) -> Untouched:
    """Choose what a job asks for; ``titles`` are those of `Processed`."""
    return Processed(job, titles) if job.processes else Untouched(job)


def _lines_of(header: str | None) -> str:
    """CSV or JSON lines, whose rows are lines; "" for any other type."""
    kind = format_of(bare(header))
    return kind.name if kind is not None and kind.name in {CSV, JSON_LINES} else ""


def _filtered(path: JsonPath, values: Values) -> Values:
    if path.is_identity:
        return values
    try:
        return [_encode(path(_parsed(each))) if isinstance(each, bytes) else path(each) for each in values]
    except Missing as error:
        raise Unprocessable(f"the filter {path.text} found {error}") from error


def _read_csv(text: bytes) -> Values:
    """Rows of cells; a cell keeps its quotes, so that it is written as it was read."""
    return [_cells(line) for line in text.decode("utf-8", "surrogateescape").split("\n") if line.strip()]


def _cells(line: str) -> list[str]:
    line = line.removesuffix("\r")
    if '"' not in line:
        return line.split(",")
    cells = []
    at = 0
    while match := _CELL.match(line, at):
        cells.append(match[1])
        at = match.end()
        if not match[2]:
            return cells
    raise Unprocessable(f"{line[:100]!r} has a quoted cell without a closing quote")


def _write_csv(rows: Values) -> bytes:
    lines = [",".join(map(str, row)) if isinstance(row, list) else str(row) for row in rows]
    return "".join(line + "\n" for line in lines).encode("utf-8", "surrogateescape")


def _read_lines(text: bytes) -> Values:
    """The texts of the lines' values; a document of several lines is one value."""
    with contextlib.suppress(Unprocessable):
        return [_read_json(text)]
    return [_read_json(line) for line in text.split(b"\n") if line.strip()]


def _read_json(text: bytes) -> bytes:
    try:
        _parsed(text.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise Unprocessable(f"{text[:100].decode(errors='replace')} is not JSON ({error})") from error
    return text.removeprefix(BYTE_ORDER_MARK).strip()


def _parsed(text: bytes | str) -> Any:
    """The value of a text; its numbers are texts."""
    number = orjson.Fragment
    return json.loads(text, parse_int=number, parse_float=number, parse_constant=number)


def _encode(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise Unprocessable(str(error)) from error


def _join_json(record: bytes, answer: bytes) -> bytes:
    """A record's own members, byte for byte, and the answer."""
    if not record.startswith(b"{"):
        record = b'{"%b":%b}' % (INPUT_KEY.encode(), record)
    members = record.removesuffix(b"}").rstrip()
    comma = b"" if members == b"{" else b","
    return b'%b%b"%b":%b}' % (members, comma, OUTPUT_KEY.encode(), _encode(_parsed(answer)))


_CODECS: dict[str, tuple[Callable[[bytes], Values], Callable[[Values], bytes], Callable[[Any, Any], Any]]] = {
    CSV: (_read_csv, _write_csv, lambda record, answer: [*record, *answer]),
    JSON_LINES: (
        _read_lines,
        lambda values: b"".join(value + b"\n" for value in values),
        _join_json,
    ),
    JSON: (lambda text: [_read_json(text)], b"".join, _join_json),
}


FAIL = "fail"
PLACEHOLDER = "placeholder"
SIDECAR = "sidecar"
ON_ERROR = (FAIL, PLACEHOLDER, SIDECAR)


class Outcome(Struct):
    """The result of a batch, or of several."""

    records: int
    """Number of records, bad ones among them."""

    text: bytes
    """Bytes for the output."""

    errors: bytes = b""
    """Lines for the error file."""

    bad: list[BadRecord] = field(default_factory=list)
    """Records that the server refused."""

    surplus: int = 0
    """Rows of the answers beyond one for each record; below 0 if some lack."""

    uneven: int = 0
    """Number of mini-batches whose answer has more rows than records, or fewer."""

    def __add__(self, following: "Outcome") -> "Outcome":
        return Outcome(
            records=self.records + following.records,
            text=self.text + following.text,
            errors=self.errors + following.errors,
            bad=self.bad + following.bad,
            surplus=self.surplus + following.surplus,
            uneven=self.uneven + following.uneven,
        )


class Transformer:
    """Turns batches into outcomes by means of the server; ``hint`` ends each refusal. Thread-safe."""

    def __init__(
        self,
        job: Job,
        sender: Sender,
        on_error: str,
        limit: BadLimit | None,
        hint: str,
        titles: Sequence[str] | None,
    ) -> None:
        self._job = job
        self._hint = hint
        self._counts = BadRecordCounts(limit)
        self._processing = processing_of(job, titles)
        self._sender = sender
        self._on_error = on_error

    def __call__(self, batch: MiniBatch, name: str) -> Outcome:
        """Send ``batch`` of the object ``name``.

        Raises ObjectFailed if bad records fail the object, EveryRecordFails, and what `Sender.send` raises
        except Refused.
        """
        try:
            return self._send(batch, name)
        except Refused as refused:
            status = refused.status
            message = refused.message + self._hint
        except Unprocessable as error:
            status = None
            message = str(error)
        if len(batch) == 1:
            sentence = message if self._job.split_type == NONE else without_place(message, 1)
            bad_record = batch.failure(name, sentence, status)
            self._note_settled(batch, refused=1)
            self._counts.add(bad_record)
            if self._on_error == FAIL:
                raise ObjectFailed(bad_record)
            text = self._processing.header(batch)
            line = error_line(bad_record, batch.body)
            if self._on_error == PLACEHOLDER:
                text += self._processing.substitute(batch, bad_record.error)
                line = error_line(bad_record)
            return Outcome(1, text, line, [bad_record])
        middle = len(batch) // 2
        return self(batch.part(0, middle), name) + self(batch.part(middle, len(batch)), name)

    def stream(self, chunks: Callable[[], Iterable[bytes]], name: str) -> Outcome:
        """Stream the whole object ``name``; each attempt calls ``chunks`` again. Raises as a call does."""
        try:
            answer = self._sender.send(chunks)
        except Refused as refused:
            raise ObjectFailed(BadRecord(name, refused.message, status=refused.status)) from refused
        return Outcome(1, self._processing.output(whole_object(b""), answer))

    def _send(self, batch: MiniBatch, name: str) -> Outcome:
        answer = self._sender.send(self._processing.request(batch), batch.headers, in_parts=len(batch) > 1)
        self._counts.note_success()
        self._note_settled(batch, answered=len(batch))
        try:
            text = self._processing.output(batch, answer)
            surplus = self._processing.rows(batch, answer) - len(batch)
            if surplus and self._job.processes:
                raise Unprocessable(f"{len(batch)} record(s) got {len(batch) + surplus} answer(s)")  # noqa: TRY301
            return Outcome(len(batch), text, surplus=surplus, uneven=int(surplus != 0))
        except Unprocessable as error:
            # Not the records' fault: halving the batch would repeat the same answer for each part.
            message = f"the answer can't be used: {error}"
            raise ObjectFailed(batch.failure(name, message)) from error

    def _note_settled(self, batch: MiniBatch, **counts: int) -> None:
        size = 0 if self._job.compression == GZIP else len(batch.body)
        self._sender.statistics.add(settled_bytes=size, **counts)


def error_line(bad_record: BadRecord, record: bytes | None = None) -> bytes:
    """One line of an error file: JSON, with ``record`` as base64 if the output leaves it out."""
    values = bad_record.to_values()
    if record is not None:
        values["data_base64"] = base64.b64encode(record).decode()
    return json.dumps(values, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
