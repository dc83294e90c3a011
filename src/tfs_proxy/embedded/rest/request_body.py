"""A request's body on its way into `rest.app`: whole, within the limit, and with memory reserved for it."""

import io
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from tfs_proxy.embedded.core.process_ledger import RequestLedger
from tfs_proxy.errors import BadInput, PayloadTooLarge
from tfs_proxy.memory import DEFAULT_BODY_BYTES, MEGABYTE, RESERVED_FROM_BYTES
from tfs_proxy.wire.error_body import body_too_large
from tfs_proxy.wire.gzip_body import gunzip

Receive = Callable[[], Awaitable[dict[str, Any]]]
Headers = list[tuple[bytes, bytes]]
"""Names in lower case with their values."""

MAX_UNPACKED_BYTES = DEFAULT_BODY_BYTES
"""TF Serving's limit; a small packed body could fill any memory without one."""
MAX_BODY_BYTES = 10 * DEFAULT_BODY_BYTES
"""What a worker makes of a body for this server may be several times as large."""
_COPIES = 3
"""Room for the body, for a copy of its array, and for the values of most bodies."""


async def read(receive: Receive, headers: Headers, ledger: RequestLedger) -> bytes | None:
    """The whole body, still packed; None if the client went away in the middle of it.

    Raises PayloadTooLarge for one over the limit, and Overloaded if others have the memory for it.
    """
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body, reserved = bytes(message.get("body", b"")), 0
    else:
        room = await _room(ledger, _declared_bytes(headers), 0)
        whole = await _whole(message, receive, ledger, room)
        if whole is None:
            return None
        body, reserved = whole
    if is_packed(headers):
        await _room(ledger, min(_unpacked_bytes(body), MAX_UNPACKED_BYTES), reserved)
    return body


async def _whole(
    message: dict[str, Any], receive: Receive, ledger: RequestLedger, reserved: int
) -> tuple[bytes, int] | None:
    """A body that comes in parts, of which ``message`` is the first, and what is reserved for it."""
    # PERF: a list of parts, joined, would take the memory twice.
    body = io.BytesIO()
    while message["type"] != "http.disconnect":
        body.write(message.get("body", b""))
        if not message.get("more_body"):
            return body.getvalue(), reserved
        reserved = await _room(ledger, body.tell(), reserved)
        message = await receive()
    return None


async def _room(ledger: RequestLedger, size_bytes: int, reserved: int) -> int:
    """Reserve what a body of this size needs and has not yet; how much it has then."""
    if size_bytes > MAX_BODY_BYTES:
        raise PayloadTooLarge(body_too_large(f"{MAX_BODY_BYTES // MEGABYTE} MB"))
    if size_bytes < RESERVED_FROM_BYTES or _COPIES * size_bytes <= reserved:
        return reserved
    # A body of unknown size may grow by as much again before it asks once more.
    wanted = _COPIES * size_bytes * (2 if reserved else 1)
    await ledger.reserve_ahead(wanted - reserved)
    return wanted


def _declared_bytes(headers: Headers) -> int:
    return next((int(value) for name, value in headers if name == b"content-length"), 0)


def is_packed(headers: Headers) -> bool:
    """Whether the first header of this kind says that the body is in gzip's format."""
    for name, value in headers:  # PERF: each request comes here, and a generator costs twice as much
        if name == b"content-encoding":
            return b"gzip" in value.lower()
    return False


def unpacked(body: bytes, ledger: RequestLedger) -> bytes:
    """The bytes of a packed body: none at all if it is not one whole packed document within the limit.

    So does TF Serving, whose answer then is that the document is empty. Raises Overloaded.
    """
    try:
        return gunzip(body, MAX_UNPACKED_BYTES, most_members=1, reserve=partial(_reserve_piece, ledger))
    except (BadInput, PayloadTooLarge):
        return b""


def _unpacked_bytes(body: bytes) -> int:
    """What a packed body says that it unpacks to, in its last four bytes; it may be wrong."""
    return int.from_bytes(body[-4:], "little")


def _reserve_piece(ledger: RequestLedger, size_bytes: int) -> None:
    if size_bytes >= RESERVED_FROM_BYTES:
        ledger.reserve(size_bytes)
