"""The parts of nginx.conf that answer for nginx itself: its refusals, as JSON. Pure."""

from collections.abc import Iterator, Mapping

from tfs_proxy.observe.logs.access import quoted_reason
from tfs_proxy.observe.logs.reasons import own_reason
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor.nginx import uploads
from tfs_proxy.wire.error_body import (
    HEADERS_TOO_LARGE,
    MODEL_SERVER,
    TOO_LATE,
    TOO_MANY_UPLOADS,
    UNKNOWN_HTTP_VERSION,
    UNKNOWN_TRANSFER_CODING,
    UPLOAD_RETRY_SECONDS,
    body_too_large,
    error_body,
    not_answered,
)
from tfs_proxy.wire.header_names import REQUEST_ID

REFUSALS: Mapping[int, str] = {
    400: "bad request: it is not valid HTTP (RFC 9112)",
    403: "forbidden",
    404: "there is nothing at this path",
    405: "this method is not allowed here",
    408: TOO_LATE,
    411: "a Content-Length is needed",
    413: body_too_large("$limit MB"),
    414: "the URI is too long",
    416: "the range can't be satisfied",
    421: "misdirected request",
    429: "too many requests",
    431: HEADERS_TOO_LARGE,
    500: "internal error of nginx",
    501: UNKNOWN_TRANSFER_CODING,
    503: "not available",
    504: "no answer in time",
    505: UNKNOWN_HTTP_VERSION,
}
"""What nginx refuses by itself, as the text under ``error``."""

REPLACED: Mapping[int, int] = {494: 431, 495: 400, 496: 400, 497: 400}
"""nginx's own status numbers, and what clients get instead."""

ID_HEADER = f"add_header {REQUEST_ID} $chosen_id always;"
"""On every answer, in place of a server's own. A location with an ``add_header`` of its own repeats it."""


def directives(settings: Settings, bad_gateway: str) -> Iterator[str]:
    """``error_page`` lines for the server block, and the internal locations that they lead to.

    A named location would answer a malformed URI in HTML; an internal location does not.
    """
    yield from error_pages({502: bad_gateway})
    for status, text in REFUSALS.items():
        yield location(f"{status}", status, text.replace("$limit", str(settings.max_payload_mb)))
    too_late = not_answered(MODEL_SERVER, settings.request_timeout_seconds)
    yield location("model-server-504", 504, too_late)
    retry = f"{ID_HEADER} add_header Retry-After {UPLOAD_RETRY_SECONDS} always; "
    yield location("uploads", 503, TOO_MANY_UPLOADS, retry)


def location(name: str, status: int, text: str, header: str = "") -> str:
    """The internal location ``/.refused/NAME``, which answers with ``text``, and has it as the reason."""
    body = error_body(text).decode().replace("'", "\\'")
    reason = f"set $refusal '{quoted_reason(own_reason(text))}';"
    return (
        f"location = /.refused/{name} {{ internal; lingering_close on; {header}{reason} "
        f"return {status} '{body}'; }}"
    )


def error_pages(others: Mapping[int, str]) -> list[str]:
    """``error_page`` lines for all statuses; ``others`` lead elsewhere than to their refusal.

    An ``error_page`` of a location's own hides those of the server block, so such a location needs them all.
    """
    targets = {status: f"/.refused/{status}" for status in REFUSALS} | dict(others)
    lines = [f"error_page {status} {target};" for status, target in targets.items()]
    lines.append(uploads.ERROR_PAGE)
    return lines + [f"error_page {own} ={status} /.refused/{status};" for own, status in REPLACED.items()]
