"""Refusals of gunicorn: its exceptions as JSON answers."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus

from msgspec import Struct

from tfs_proxy.observe.request_record import chosen_id
from tfs_proxy.wire.error_body import (
    HEADERS_TOO_LARGE,
    INTERNAL_ERROR,
    UNKNOWN_HTTP_VERSION,
    UNKNOWN_TRANSFER_CODING,
    error_body,
)
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES, REQUEST_ID

_ATTRIBUTES = CUSTOM_ATTRIBUTES.upper()


class UnsupportedTransferCoding(Exception):
    """A body has an encoding that this server does not know."""


class RepeatedHeader(Exception):
    """A header that says what a request is for is repeated, and servers join two in different ways."""


def refuse_misread(headers: Iterable[tuple[str, str]]) -> None:
    """Raise RepeatedHeader for two headers of custom attributes.

    Raises UnsupportedTransferCoding for any other coding than chunks, such as ``gzip``.
    """
    fields = [(name.upper(), value) for name, value in headers]
    if sum(name == _ATTRIBUTES for name, _ in fields) > 1:
        raise RepeatedHeader
    for name, value in fields:
        # gunicorn takes "gzip, chunked", and returns the body still compressed.
        if name == "TRANSFER-ENCODING" and value.strip().lower() not in {"chunked", "identity", ""}:
            raise UnsupportedTransferCoding(value)


class Refusal(Struct, frozen=True):
    """Status and the text under ``error``."""

    status: int
    text: str

    def response(self, request_id: str | None = None) -> bytes:
        """Write the whole HTTP response; the connection closes after it. Without an id it gets a new one."""
        body = error_body(self.text)
        head = (
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n"
            f"{REQUEST_ID}: {request_id or chosen_id(None, None)}\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        return head.encode("ascii") + body


OUT_OF_TIME = Refusal(
    504, "the worker was stopped before it could answer: it exceeded SAGEMAKER_GUNICORN_TIMEOUT_SECONDS"
)
OUR_FAULT = Refusal(500, INTERNAL_ERROR)
REFUSALS: Mapping[str, Refusal] = {
    "LimitRequestLine": Refusal(414, "the request line is too long"),
    "LimitRequestHeaders": Refusal(431, HEADERS_TOO_LARGE),
    "UnsupportedTransferCoding": Refusal(501, UNKNOWN_TRANSFER_CODING),
    "ExpectationFailed": Refusal(417, "the only expectation that can be met is 100-continue"),
    "ForbiddenProxyRequest": Refusal(403, "this proxy may not send requests here"),
    "InvalidRequestLine": Refusal(400, "the request line is malformed"),
    "InvalidRequestMethod": Refusal(400, "the request's method is malformed"),
    "InvalidHTTPVersion": Refusal(400, UNKNOWN_HTTP_VERSION),
    "InvalidHeaderName": Refusal(400, "a header's name is malformed"),
    "RepeatedHeader": Refusal(400, f"the header {CUSTOM_ATTRIBUTES} is there twice"),
    "InvalidHeader": Refusal(400, "a header is malformed"),
    "ObsoleteFolding": Refusal(400, "a header is folded over several lines, which is obsolete"),
    "InvalidSchemeHeaders": Refusal(400, "headers contradict each other about the scheme"),
    "InvalidChunkSize": Refusal(400, "a chunk's size is malformed"),
    "InvalidChunkExtension": Refusal(400, "a chunk's extension is malformed"),
    "ChunkMissingTerminator": Refusal(400, "a chunk does not end as it must"),
    "InvalidResponseHeader": OUR_FAULT,
    "InvalidResponseHeaderName": OUR_FAULT,
    "ConfigurationProblem": OUR_FAULT,
    "ParseException": Refusal(400, "the request is not valid HTTP (RFC 9112)"),
}
"""Answers by the name of gunicorn's exception class, since its versions differ in which exist.

501 for an unknown transfer coding is RFC 9112, 6.1.
"""


def refusal(error: BaseException) -> Refusal:
    names = (kind.__name__ for kind in type(error).__mro__)
    return next((REFUSALS[name] for name in names if name in REFUSALS), OUR_FAULT)


def is_refused_by_gunicorn(error: BaseException) -> bool:
    """True if gunicorn refuses the request itself, and not the application or the sending of its answer."""
    return refusal(error) not in {OUR_FAULT, OUT_OF_TIME}
