"""Files of data capture -> the requests that they hold, to be sent again."""

import logging
import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from tfs_proxy.capture.record import INPUT, read_line
from tfs_proxy.errors import BadInput

log = logging.getLogger(__name__)

ENDING = ".jsonl"
BEGINNING_BYTES = 64
"""Enough of a file to see what it is."""

_BEGINNING = re.compile(rb'\s*\{\s*"(captureData|eventMetadata|eventVersion)"')


class CapturedRequest(Struct, frozen=True):
    """What a client sent: headers are None if it sent none."""

    body: bytes
    content_type: str | None
    custom_attributes: str | None


def is_capture(name: str, beginning: bytes) -> bool:
    """Whether a file of this name that begins so is one of data capture, SageMaker's or ours."""
    return name.endswith(ENDING) and _BEGINNING.match(beginning) is not None


def captured_request(line: bytes) -> CapturedRequest:
    """The request in a line; raises BadInput."""
    record = read_line(line)
    if record.input is None:
        raise BadInput(f"it has no {INPUT}: only answers were captured")
    return CapturedRequest(record.input.body, record.input.content_type or None, record.custom_attributes)


def captured_requests(lines: Iterable[bytes], name: str) -> Iterator[CapturedRequest]:
    """The requests of a file, whose lines have their ends; raises BadInput that names the line.

    A last line without its end is left out if it can't be read: who wrote it was killed.
    """
    for number, line in enumerate(lines, 1):
        if line.isspace():
            continue
        try:
            request = captured_request(line)
        except BadInput as error:
            if not line.endswith(b"\n"):
                log.warning("the last line of %s is not whole and is left out", name)
                return
            raise BadInput(f"{name}, line {number}: {error}") from error
        yield request
