"""HTTP requests and responses as values, for both servers and clients."""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from msgspec import Struct, field

from tfs_proxy.wire.error_body import error_body

ALIVE = b'{"status": "alive"}'
"""The answer that KServe's clients expect at ``/``."""


class HttpRequest(Struct, frozen=True):
    """A complete request to a server."""

    method: str
    """Method of HTTP."""

    path: str
    """Path without its query, as the client wrote it."""

    headers: Mapping[str, str] = field(default_factory=dict)
    """Values by name in lower case."""

    body: bytes = b""
    """Whole body; empty if there is none."""

    query: str = ""
    """Part after the path's ``?``, as the client wrote it."""


class HttpResponse(Struct, frozen=True):
    """One whole response; for a client, the header names are as the server wrote them."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    keeps_connection: bool = True
    """True if the connection can carry another request."""

    @classmethod
    def error(cls, status: int, text: str, *, headers: Mapping[str, str] | None = None) -> "HttpResponse":
        return cls(status, error_body(text), headers or {})

    def header(self, name: str) -> str | None:
        return header_of(self.headers, name)


class Parts(Protocol):
    """The parts of a body as they come; `aclose` drops the rest, and may be called at any time."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return itself."""

    async def __anext__(self) -> bytes:
        """Return the next part. Raises StopAsyncIteration at the end."""

    async def aclose(self) -> None:
        """Drop the rest; idempotent."""


class StreamedResponse(Struct, frozen=True):
    """A response whose body is still coming: a server sends it in chunks, a client reads it as it comes."""

    status: int
    parts: Parts
    headers: Mapping[str, str] = field(default_factory=dict)

    def header(self, name: str) -> str | None:
        return header_of(self.headers, name)


def header_of(headers: Mapping[str, str], name: str) -> str | None:
    """Value of a header, ignoring case; None if there is none."""
    lower = name.lower()
    return headers.get(name) or next((text for key, text in headers.items() if key.lower() == lower), None)
