"""Files with requests, as flags of `check`, `warmup` and `pack` name them: bodies, or data capture's."""

import sys
from pathlib import Path

from tfs_proxy.capture.replay import BEGINNING_BYTES, CapturedRequest, captured_requests, is_capture
from tfs_proxy.errors import ArchiveError, BadInput

STDIN = Path("-")


def read_requests(
    file: Path | None, content_type: str | None, custom_attributes: str | None
) -> list[CapturedRequest]:
    """The requests of a file of data capture, else the one whose body it is; - is stdin, None has none.

    The type and the attributes, if they are given, win over captured ones. Raises ArchiveError.
    """
    body = _request_body(file)
    if file is None or body is None:
        return []
    if not is_capture(file.name, body[:BEGINNING_BYTES]):
        return [CapturedRequest(body, content_type, custom_attributes)]
    try:
        requests = list(captured_requests(body.splitlines(keepends=True), f"{file}"))
    except BadInput as error:
        raise ArchiveError(f"The request {error}.") from None
    return [
        CapturedRequest(
            request.body, content_type or request.content_type, custom_attributes or request.custom_attributes
        )
        for request in requests
    ]


def _request_body(file: Path | None) -> bytes | None:
    """The body to try, None without a request; raises ArchiveError if the file can't be read."""
    if file is None:
        return None
    try:
        return sys.stdin.buffer.read() if file == STDIN else file.read_bytes()
    except OSError as error:
        raise ArchiveError(f"The request {file} can't be read: {error.strerror}.") from error
