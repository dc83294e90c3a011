"""Whole answers of `rest.app`: their headers, the pages of a plain HTTP server, and refusals."""

import logging
import re
from typing import NamedTuple

from tfs_proxy.embedded.errors import ServingError, invalid, of_memory
from tfs_proxy.embedded.rest.request_body import Headers
from tfs_proxy.errors import Overloaded, PayloadTooLarge
from tfs_proxy.serving_json.answer_text import error as error_body
from tfs_proxy.wire.error_body import TOO_LATE
from tfs_proxy.wire.grpc_codes import HTTP_STATUS, GrpcCode

log = logging.getLogger(__name__)

JSON: Headers = [(b"content-type", b"application/json")]
TEXT: Headers = [(b"content-type", b"text/plain")]
_RETRY = (b"retry-after", b"1")
_CLOSE = (b"connection", b"close")
_HTML: Headers = [(b"content-type", b"text/html")]
CORS: Headers = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"POST, GET"),
    (b"access-control-allow-headers", b"Content-Type"),
]
_WEB_ORIGIN = re.compile(rb"https?://")


class RestAnswer(NamedTuple):
    """A whole HTTP answer; one that is not ``of_api`` says nothing of other origins."""

    status: int
    body: bytes
    headers: Headers
    of_api: bool = True


def _page(status: int, reason: str) -> RestAnswer:
    """What TF Serving's HTTP server answers with if no handler is responsible."""
    body = (
        f"<HTML><HEAD>\n<TITLE>{status} {reason}</TITLE>\n</HEAD><BODY>\n<H1>{reason}</H1>\n</BODY></HTML>\n"
    )
    return RestAnswer(status, body.encode(), _HTML, of_api=False)


NOT_FOUND = _page(404, "Not Found")
BAD_REQUEST = _page(400, "Bad Request")


def memory_refusal(error: PayloadTooLarge | Overloaded) -> RestAnswer:
    """The answer to a request that there is no memory for."""
    if isinstance(error, PayloadTooLarge):
        return RestAnswer(413, error_body(str(error)), JSON)
    return RestAnswer(503, error_body(str(error)), [*JSON, _RETRY])


def _refusal(error: ServingError) -> RestAnswer:
    return RestAnswer(HTTP_STATUS[error.code], error_body(error.text), JSON)


def refused(error: Exception, request: str) -> tuple[GrpcCode, RestAnswer]:
    """What is counted and what is answered; one that nobody expects is logged, too."""
    if isinstance(error, PayloadTooLarge | Overloaded):
        return of_memory(error).code, memory_refusal(error)
    if isinstance(error, RecursionError):
        error = invalid("JSON Parse error: The document is nested too deeply")
    elif not isinstance(error, ServingError):
        log.error("%s failed", request, exc_info=error)
        error = ServingError(GrpcCode.INTERNAL, "Internal error: see the model server's log")
    return error.code, _refusal(error)


def too_slow() -> RestAnswer:
    """The answer to a body that did not arrive in time."""
    return RestAnswer(408, error_body(TOO_LATE), [*JSON, _CLOSE])


def preflight(headers: Headers) -> RestAnswer:
    """What a browser asks in front of a request: fine for any origin of the web."""
    origins = (value for name, value in headers if name == b"origin")
    return RestAnswer(200 if _WEB_ORIGIN.search(next(origins, b"")) else 400, b"", [])
