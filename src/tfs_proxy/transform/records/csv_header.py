"""Tells a CSV object's first line that names its columns from one that is a record."""

from collections.abc import Sequence

from tfs_proxy.errors import BadInput, UnsupportedMediaType
from tfs_proxy.payload.formats.csv_records import NUMBER, Dialect, csv_dialect, csv_rows
from tfs_proxy.payload.media_types import CSV
from tfs_proxy.payload.registry import parse_media_type
from tfs_proxy.serving_json.documents import BYTE_ORDER_MARK
from tfs_proxy.transform.job import ABSENT, AUTO, PRESENT, CsvHeader, Job
from tfs_proxy.transform.records.jsonpath import JsonPath, Missing


def asks_model(job: Job) -> bool:
    """Whether the model's inputs decide if lines of CSV begin with a header: flag and ContentType do not."""
    dialect = _dialect(job)
    return dialect is not None and job.csv_header == AUTO and dialect.header is None


def header_of(job: Job, inputs: Sequence[str]) -> CsvHeader | None:
    """The header that an object may begin with; ``inputs`` are the model's, () if they are not known.

    If the model decides, it is a line with the names of several inputs: a line that names one may be text.
    """
    dialect = _dialect(job)
    if dialect is None or job.csv_header == ABSENT:
        return None
    if asks_model(job):
        return CsvHeader(tuple(inputs), dialect.delimiter, job.input_filter) if len(inputs) > 1 else None
    return CsvHeader() if job.csv_header == PRESENT or dialect.header else None


def begins_with(header: CsvHeader, line: bytes) -> bool:
    """Whether ``line``, the first of an object, is such a header."""
    return not header.names or set(_cells(header, line)) == set(header.names)


def looks_like(header: CsvHeader, lines: Sequence[bytes]) -> bool:
    """Whether the first of ``lines`` names inputs, or has no number while the second does."""
    first, *rest = ([NUMBER.fullmatch(cell) for cell in _cells(header, line)] for line in lines)
    named = not set(header.names).isdisjoint(_cells(header, lines[0]))
    return named or (not any(first) and any(map(any, rest)))


def has_order(job: Job) -> bool:
    """Whether ContentType has the order of columns, which makes the header needless."""
    dialect = _dialect(job)
    return dialect is not None and bool(dialect.columns)


def _cells(header: CsvHeader, line: bytes) -> list[str]:
    """The cells of a line that the filter leaves; none if it is no line of CSV."""
    try:
        cells = next(csv_rows(line.removeprefix(BYTE_ORDER_MARK), header.delimiter), [])
        left = JsonPath(header.input_filter)(cells)
    except (BadInput, Missing):
        return []
    return [cell.strip() for cell in (left if isinstance(left, list) else [left])]


def _dialect(job: Job) -> Dialect | None:
    """How the lines of CSV are written; None for other input, and for a ContentType that servers refuse."""
    try:
        return csv_dialect(parse_media_type(job.content_type).parameters) if job.record_type == CSV else None
    except UnsupportedMediaType:
        return None
