"""Tells a CSV object's first line that names its columns from one that is a record."""

from collections.abc import Sequence

from tfs_proxy.errors import BadInput, UnsupportedMediaType
from tfs_proxy.payload.formats.csv_records import Dialect, csv_dialect, csv_rows
from tfs_proxy.payload.media_types import CSV
from tfs_proxy.payload.registry import parse_media_type
from tfs_proxy.serving_json.documents import BYTE_ORDER_MARK
from tfs_proxy.transform.job import ABSENT, AUTO, PRESENT, CsvHeader, Job


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
        return CsvHeader(tuple(inputs), dialect.delimiter) if len(inputs) > 1 else None
    return CsvHeader() if job.csv_header == PRESENT or dialect.header else None


def begins_with(header: CsvHeader, line: bytes) -> bool:
    """Whether ``line``, the first of an object, is such a header."""
    if not header.names:
        return True
    try:
        cells = next(csv_rows(line.removeprefix(BYTE_ORDER_MARK), header.delimiter), [])
    except BadInput:
        return False
    return {cell.strip() for cell in cells} == set(header.names)


def _dialect(job: Job) -> Dialect | None:
    """How the lines of CSV are written; None for other input, and for a ContentType that servers refuse."""
    try:
        return csv_dialect(parse_media_type(job.content_type).parameters) if job.record_type == CSV else None
    except UnsupportedMediaType:
        return None
