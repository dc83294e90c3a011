"""An HTTP request and an HTTP response as values, the same for the server and for the client."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tfs_proxy.wire.error_body import error_body

ALIVE = b'{"status": "alive"}'
"""What KServe's clients expect at ``/``."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request that the server has read to its end; the names of ``headers`` are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    query: str = ""
    """What follows the path's ``?``, as the client wrote it."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """One whole response; a client finds the header names as the server wrote them."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    keeps_connection: bool = True
    """Whether the connection can carry another request."""

    @classmethod
    def error(
        cls,
        status: int,
        text: str,
        *,
        headers: Mapping[str, str] | None = None,
        keeps_connection: bool = True,
    ) -> "HttpResponse":
        """``{"error": text}`` with this status."""
        return cls(status, error_body(text), headers or {}, keeps_connection)

    def header(self, name: str) -> str | None:
        """The value of a header, whatever the case of its name; None if there is none."""
        lower = name.lower()
        return next((value for known, value in self.headers.items() if known.lower() == lower), None)
