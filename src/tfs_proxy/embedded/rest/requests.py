"""Requests over REST: routes as TF Serving has them, and bodies within the memory that there is."""

import asyncio
import io
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from tfs_proxy.embedded.core.process_ledger import RequestLedger
from tfs_proxy.embedded.errors import invalid
from tfs_proxy.values.errors import BadInput, PayloadTooLarge
from tfs_proxy.values.memory import DEFAULT_BODY_BYTES, MEGABYTE, RESERVED_FROM_BYTES
from tfs_proxy.values.names import HIGHEST_VERSION
from tfs_proxy.wire.error_body import body_too_large
from tfs_proxy.wire.packed_body import gunzip

_CHOICE = r"(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>[^/:]+))?"
_PREDICTION = re.compile(
    rf"/v1/models/(?P<model>[^/:]+){_CHOICE}:(?P<method>classify|regress|predict)", re.IGNORECASE
)
_STATUS = re.compile(rf"/v1/models(?:/(?P<model>[^/:]+))?{_CHOICE}(?P<metadata>/metadata)?", re.IGNORECASE)
_URI = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*")
"""Path and query by RFC 3986: everything else is to be percent-encoded."""

_METHODS = {"classify", "regress", "predict"}
PREFLIGHT = "preflight"


class Route(Struct, frozen=True):
    """One request's target: what to do with which version, or which label, of which model."""

    action: str
    model: str
    version: int | None = None
    label: str | None = None


def is_uri(path: str) -> bool:
    """True if a path with its query is written as the standard says; others are plain 400s."""
    return _URI.fullmatch(path) is not None


def match(method: str, path: str) -> Route:
    """Reads a path of the API. Raises ServingError if it means nothing."""
    if method == "OPTIONS":
        return Route(PREFLIGHT, "")
    matched = None
    if method == "POST":
        matched = _PREDICTION.fullmatch(path)
    elif method == "GET":
        matched = _STATUS.fullmatch(path)
    parts = matched.groupdict() if matched else {}
    if matched is None or (method == "POST" and parts["method"] not in _METHODS):
        raise invalid(f"Malformed request: {method} {path}")
    version = _version(parts["version"])
    action = "metadata" if parts.get("metadata") == "/metadata" else parts.get("method", "status")
    if not parts["model"]:
        raise invalid("Missing model name in request.")
    return Route(
        action,
        _decoded(parts["model"]),
        version,
        _decoded(parts["label"]) if parts["label"] is not None else None,
    )


def _version(text: str | None) -> int | None:
    if text is None:
        return None
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(HIGHEST_VERSION)) or int(digits) > HIGHEST_VERSION:
        raise invalid(f"Failed to convert version: {text} to numeric.")
    return int(digits)


def _decoded(text: str) -> str:
    return unquote_to_bytes(text).decode("utf-8", "replace")


GRACE_SECONDS = 10.0
LEAST_BYTES_PER_SECOND = 1024
"""Least rate of a body after the grace, on average: the slowest mobile network has ten times that."""

SILENCE_SECONDS = 30.0
"""Limit of silence, longer than a network's hiccup: a client that has vanished never says so."""

Receive = Callable[[], Awaitable[dict[str, Any]]]
Headers = list[tuple[bytes, bytes]]
"""Names in lower case with their values."""

MAX_UNPACKED_BYTES = DEFAULT_BODY_BYTES
"""TF Serving's limit; a small packed body could fill any memory without one."""
MAX_BODY_BYTES = 10 * DEFAULT_BODY_BYTES
"""A worker's body for this server may be several times as large as the client's."""
_COPIES = 3
"""Room for the body, for a copy of its array, and for the values of most bodies."""
AT_ONCE_SECONDS = 2.0
"""Time of a body that comes at once: others wait longer for memory, and 100 MB need less on a local net."""


class TooSlow(Exception):
    """The body did not arrive in time."""


async def read(receive: Receive, headers: Headers, ledger: RequestLedger) -> bytes | None:
    """The whole body, still packed; None if the client went away in the middle of it.

    Raises PayloadTooLarge for one over the limit, Overloaded if others have the memory for it, and TooSlow.
    """
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body = bytes(message.get("body", b""))
    else:
        declared_bytes = next((int(value) for name, value in headers if name == b"content-length"), 0)
        whole = await _Arrival(ledger, declared_bytes).whole(message, receive)
        if whole is None:
            return None
        body = whole
    if is_packed(headers):
        unpacked_bytes = int.from_bytes(body[-4:], "little")  # as gzip has it, which may be wrong
        await _reserve_up_to(ledger, min(unpacked_bytes, MAX_UNPACKED_BYTES))
    return body


class _Arrival:
    """A body that comes in parts, and what is reserved for it.

    That is room for all that was declared as long as it comes at once, as from any proxy; from then on
    for what has come, so that uploads that stall keep no others waiting.
    """

    def __init__(self, ledger: RequestLedger, declared_bytes: int) -> None:
        self._ledger = ledger
        self._declared_bytes = declared_bytes
        # A list of parts, joined, would take the memory twice.
        self._body = io.BytesIO()
        self._began = asyncio.get_running_loop().time()
        self._comes_at_once = True

    async def whole(self, message: dict[str, Any], receive: Receive) -> bytes | None:
        """The body, whose first part is ``message``; raises as `read` does."""
        await _reserve_up_to(self._ledger, self._declared_bytes)
        while message["type"] != "http.disconnect":
            self._body.write(message.get("body", b""))
            is_whole = not message.get("more_body")
            size_bytes = self._body.tell()
            if is_whole or _COPIES * size_bytes > self._ledger.held:
                # A body of unknown size may grow by as much again before it asks once more.
                largest = self._declared_bytes or 2 * size_bytes
                await _reserve_up_to(self._ledger, size_bytes if is_whole else min(2 * size_bytes, largest))
            if not message.get("more_body"):
                return self._body.getvalue()
            message = await self._next(receive)
        return None

    async def _next(self, receive: Receive) -> dict[str, Any]:
        now = asyncio.get_running_loop().time()
        slowest = self._began + GRACE_SECONDS + self._body.tell() / LEAST_BYTES_PER_SECOND
        deadline = min(slowest, now + SILENCE_SECONDS)
        if self._comes_at_once:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._began + AT_ONCE_SECONDS):
                    return await receive()
            self._comes_at_once = False
            self._ledger.keep_ahead(room_for(self._body.tell()))
        try:
            async with asyncio.timeout_at(deadline):
                return await receive()
        except TimeoutError:
            raise TooSlow from None


async def _reserve_up_to(ledger: RequestLedger, size_bytes: int) -> None:
    """Reserve what a body of this size needs and has not yet."""
    if size_bytes > MAX_BODY_BYTES:
        raise PayloadTooLarge(body_too_large(f"{MAX_BODY_BYTES // MEGABYTE} MB"))
    missing = room_for(size_bytes) - ledger.held
    if missing > 0:
        await ledger.reserve_ahead(missing)


def room_for(size_bytes: int) -> int:
    """The memory to reserve for a body, in bytes; a small one needs none."""
    return _COPIES * size_bytes if size_bytes >= RESERVED_FROM_BYTES else 0


def is_packed(headers: Headers) -> bool:
    """True if the first header of this kind says that the body is in gzip's format."""
    return b"gzip" in next((value.lower() for name, value in headers if name == b"content-encoding"), b"")


def unpacked(body: bytes, ledger: RequestLedger) -> bytes:
    """The bytes of a packed body: none at all if it is not one whole packed document within the limit.

    So does TF Serving, whose answer then is that the document is empty. Raises Overloaded.
    """

    def reserve(size_bytes: int) -> None:
        if size_bytes >= RESERVED_FROM_BYTES:
            ledger.reserve(size_bytes)

    try:
        return gunzip(body, MAX_UNPACKED_BYTES, most_members=1, reserve=reserve)
    except (BadInput, PayloadTooLarge):
        return b""
