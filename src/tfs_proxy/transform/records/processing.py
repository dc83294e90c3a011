"""Makes request bodies of batches, and outputs of answers: filters, joins and AssembleWith."""

import contextlib
import json
import re
from collections.abc import Callable
from typing import Any

from tfs_proxy.payload.media_types import CSV, JSON, JSON_LINES
from tfs_proxy.transform.job import INPUT, LINE, Job
from tfs_proxy.transform.records.batches import MiniBatch
from tfs_proxy.transform.records.jsonpath import JsonPath, Missing

OUTPUT_KEY, INPUT_KEY = "SageMakerOutput", "SageMakerInput"
_CELL = re.compile(r'("(?:[^"]|"")*"|(?:[^",][^,]*)?)(,|$)')

Values = list[Any]


class Unprocessable(Exception):
    """A record or an answer that filters or joins can't be applied to."""


class DataProcessing:
    """SageMaker's DataProcessing: InputFilter, the model, JoinSource, OutputFilter, in this order.

    docs/reference/sagemaker.md has the rules. Without filters and joins, bodies and answers pass as they are,
    but AssembleWith Line ends each answer with a newline.
    """

    def __init__(self, job: Job) -> None:
        self._input_filter = JsonPath(job.input_filter)
        self._output_filter = JsonPath(job.output_filter)
        self._joins = job.join == INPUT
        if job.processes:
            self._read, self._write, self._join = _CODECS[job.record_type]
            self._read_answer, self._write_answer, _ = _CODECS[job.answer_type or job.record_type]
        self._ending = b"\n" if job.assemble_with == LINE else b""
        self._keeps_answers = not self._joins and self._output_filter.is_identity

    def request(self, batch: MiniBatch) -> bytes:
        """The header, if there is one, and the records, filtered.

        Raises Unprocessable naming the first that the filter does not fit.
        """
        if self._joins:
            self._read(batch.body)  # raises: a record that can't be joined later must not be sent
        body = batch.csv_header + batch.body
        if self._input_filter.is_identity:
            return body
        return self._write(_filtered(self._input_filter, self._read(body)))

    def output(self, batch: MiniBatch, answer: bytes) -> bytes:
        """The answers, joined to their records and filtered. Raises Unprocessable.

        If the job neither joins nor filters answers, they are written unread.
        """
        if self._keeps_answers:
            return self._ended(answer)
        answers = self._read_answer(answer)
        if self._joins:
            answers = self._joined(batch, answers)
        return self._ended(self._write_answer(_filtered(self._output_filter, answers)))

    def _ended(self, text: bytes) -> bytes:
        return text if text.endswith(self._ending) else text + self._ending

    def _joined(self, batch: MiniBatch, answers: Values) -> Values:
        records = self._read(batch.body)
        if len(records) != len(answers):
            raise Unprocessable(
                f"{len(records)} record(s) got {len(answers)} answer(s): a join needs one for each, "
                f"in {CSV} or {JSON_LINES} as the input is"
            )
        return [self._join(record, answer) for record, answer in zip(records, answers, strict=True)]


def _filtered(path: JsonPath, values: Values) -> Values:
    if path.is_identity:
        return values
    try:
        return [path(value) for value in values]
    except Missing as error:
        raise Unprocessable(f"the filter {path.text} found {error}") from error


def _read_csv(text: bytes) -> Values:
    """Rows of cells; a cell keeps its quotes, so that it is written as it was read."""
    return [_cells(line) for line in text.decode("utf-8", "surrogateescape").split("\n") if line.strip()]


def _cells(line: str) -> list[str]:
    line = line.removesuffix("\r")
    if '"' not in line:
        return line.split(",")
    cells, at = [], 0
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
    """The values of the lines; a document of several lines is one value."""
    with contextlib.suppress(ValueError):
        return [json.loads(text)]
    return [_loads(line) for line in text.split(b"\n") if line.strip()]


def _write_lines(values: Values) -> bytes:
    return b"".join(_encode(value) + b"\n" for value in values)


def _loads(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise Unprocessable(f"{text[:100].decode(errors='replace')} is not JSON ({error})") from error


def _join_json(record: Any, answer: Any) -> Any:
    if isinstance(record, dict):
        return {**record, OUTPUT_KEY: answer}
    return {INPUT_KEY: record, OUTPUT_KEY: answer}


def _encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


_CODECS: dict[str, tuple[Callable[[bytes], Values], Callable[[Values], bytes], Callable[[Any, Any], Any]]] = {
    CSV: (_read_csv, _write_csv, lambda record, answer: [*record, *answer]),
    JSON_LINES: (_read_lines, _write_lines, _join_json),
    JSON: (lambda text: [_loads(text)], lambda values: _encode(values[0]), _join_json),
}


def placeholder(job: Job, error: str) -> bytes:
    """What replaces a bad record in the output: one line or document of the answers' type.

    JSON quotes the server's ``error``; other types have ERROR, as AWS recommends.
    """
    kind = (job.accept or job.content_type or "").partition(";")[0].strip().lower()
    text = _encode({"error": error}) if "json" in kind else b"ERROR"
    return text + b"\n" if LINE in {job.assemble_with, job.split_type} else text
