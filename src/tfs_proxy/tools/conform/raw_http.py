"""Sends requests to the container byte by byte, and records what it answers and when.

Nothing is repeated, redirected or corrected on the way: checks see exactly what the container does.
"""

import json
import select
import socket
import time
from collections.abc import Iterable, Mapping
from typing import Self

import h11
from msgspec import Struct, field

from tfs_proxy.values.errors import TfsProxyError

PIECE_BYTES = 256 * 1024
CONNECT_SECONDS = 5.0
KEPT_BYTES = 8 * 1024**2
"""Bytes kept of a body: more than an answer may have. The rest is only counted."""
MOST_BYTES = 256 * 1024**2
"""Bytes read of a body: a body of 100 MB may come back in another, longer format."""
MOST_ARRIVALS = 10_000
Headers = Mapping[str, str]


class NoReply(TfsProxyError):
    """The container did not answer a request in HTTP: the sentence says what it did instead."""


class RawReply(Struct, frozen=True):
    """An answer; ``arrivals`` are the seconds after the request at which a part of its body came.

    ``body`` is its beginning if there is more of it than `KEPT_BYTES`, ``length`` is that of all of it.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    seconds: float
    arrivals: tuple[float, ...] = ()
    continued: bool = False
    length: int = 0

    def header(self, name: str) -> str | None:
        """The first header of that name, in any case; None if there is none."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def content_type(self) -> str:
        """The media type without parameters, in lower case; empty if there is none."""
        return (self.header("Content-Type") or "").partition(";")[0].strip().lower()

    @property
    def is_chunked(self) -> bool:
        return "chunked" in (self.header("Transfer-Encoding") or "").lower()

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300  # noqa: PLR2004 - the class of status that is said

    @property
    def is_failure(self) -> bool:
        return self.status >= 500  # noqa: PLR2004

    def json(self) -> object:
        """The body as JSON; None if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    def shown(self, characters: int = 160) -> str:
        """Status and the beginning of the body, to be shown in a sentence."""
        text = " ".join(self.body[: 4 * characters].decode(errors="replace").split())
        text = text if len(text) <= characters else f"{text[:characters]}..."
        return f"{self.status} {text}".strip()


class RawRequest(Struct, frozen=True):
    """A request; ``chunk_bytes`` is the size of chunks if the body is sent in chunks."""

    method: str = "GET"
    path: str = "/ping"
    headers: Headers = field(default_factory=dict)
    body: bytes = b""
    chunk_bytes: int = 0
    pause_seconds: float = 0.0
    """Seconds between two parts of ``piece_bytes``."""
    piece_bytes: int = PIECE_BYTES
    waits_for_continue: float = 0.0
    """Seconds for which the body waits for 100 Continue."""

    def all_headers(self, host: str) -> list[tuple[str, str]]:
        headers = dict(self.headers)
        given = {name.lower() for name in headers}
        if "host" not in given:
            headers = {"Host": host, **headers}
        if self.chunk_bytes:
            headers["Transfer-Encoding"] = "chunked"
        elif self.body or self.method in {"POST", "PUT"}:
            headers["Content-Length"] = str(len(self.body))
        return list(headers.items())

    def pieces(self) -> Iterable[bytes]:
        size = self.chunk_bytes or self.piece_bytes
        return (self.body[start : start + size] for start in range(0, len(self.body), size))


class RawConnection:
    """A connection, opened at once; ``connect_seconds`` says how long that took. Raises NoReply."""

    def __init__(self, address: tuple[str, int], timeout_seconds: float = CONNECT_SECONDS) -> None:
        began = time.monotonic()
        try:
            self.socket = socket.create_connection(address, timeout_seconds)
        except (OSError, UnicodeError) as error:  # a host name that IDNA can't encode raises the latter
            seconds = time.monotonic() - began
            raise NoReply(f"no connection to port {address[1]} within {seconds:.2f} s ({error})") from None
        self.connect_seconds = time.monotonic() - began
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        self._host = f"{host}:{address[1]}"
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
        self._deadline = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Raises nothing."""
        self.socket.close()

    def ask(self, request: RawRequest, timeout_seconds: float) -> RawReply:
        """Sends a request and reads the whole answer. Raises NoReply."""
        began = time.monotonic()
        self._deadline = began + timeout_seconds
        continued = self.send(request, timeout_seconds)
        return self.read(began, continued=continued)

    def send(self, request: RawRequest, timeout_seconds: float) -> bool:
        """Sends a request until the container answers; returns True if 100 Continue came."""
        self._deadline = time.monotonic() + timeout_seconds
        head = h11.Request(
            method=request.method, target=request.path, headers=request.all_headers(self._host)
        )
        try:
            self._send(self._http.send(head))
            continued = bool(request.waits_for_continue) and self._readable(request.waits_for_continue)
            for piece in request.pieces():
                if self._readable(request.pause_seconds) and not continued:
                    return continued  # it has answered already: the rest would be thrown away
                self._send(self._http.send(h11.Data(piece)))
            self._send(self._http.send(h11.EndOfMessage()))
        except (BrokenPipeError, ConnectionResetError):
            return False  # it may have answered all the same
        except OSError as error:
            raise NoReply(f"the request could not be sent ({error})") from None
        return continued

    def read(self, began: float, *, continued: bool = False) -> RawReply:
        """Read the answer to what was sent. Raises NoReply."""
        head: h11.Response | None = None
        body = _ReceivedBody(began)
        while not isinstance(event := self._next_event(began), h11.EndOfMessage):
            if time.monotonic() > self._deadline:
                raise NoReply(f"the answer still goes on after {time.monotonic() - began:.1f} s")
            if isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body.add(event.data)
            elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                raise NoReply("the connection was closed before there was an answer")
        if head is None:
            raise NoReply("the answer has no status")
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers)
        seconds = time.monotonic() - began
        return RawReply(
            head.status_code, headers, bytes(body.kept), seconds, tuple(body.arrivals), continued, body.length
        )

    def excess(self, seconds: float) -> bytes:
        """Bytes that come within ``seconds`` after the end of the answer."""
        trailing, _ = self._http.trailing_data
        try:
            return trailing or (self.socket.recv(PIECE_BYTES) if self._readable(seconds) else b"")
        except OSError:
            return b""

    def next_request(self) -> None:
        """Prepares this connection for another request. Raises NoReply if the container has closed it."""
        try:
            self._http.start_next_cycle()
        except h11.LocalProtocolError:
            raise NoReply("the connection does not take another request") from None

    def send_bytes(self, data: bytes) -> None:
        """Sends bytes that need not be HTTP; socket errors are ignored."""
        try:
            self.socket.sendall(data)
        except OSError:
            return

    def wait_for_bytes(self, seconds: float) -> None:
        """Waits at most ``seconds`` for the beginning of an answer."""
        self._readable(seconds)

    def receive_some(self, seconds: float) -> bytes:
        """The next bytes; none if the container has closed the connection. Raises NoReply."""
        try:
            self.socket.settimeout(max(seconds, 0.001))
            return self.socket.recv(PIECE_BYTES)
        except OSError as error:
            raise NoReply(f"nothing came, or the connection broke ({error})") from None

    def _next_event(self, began: float) -> object:
        while True:
            try:
                event = self._http.next_event()
                if event is not h11.NEED_DATA:
                    return event
                self.socket.settimeout(max(self._deadline - time.monotonic(), 0.001))
                self._http.receive_data(self.socket.recv(PIECE_BYTES))
            except TimeoutError:
                raise NoReply(f"no whole answer within {time.monotonic() - began:.1f} s") from None
            except h11.RemoteProtocolError as error:
                raise NoReply(f"the answer is not HTTP/1.1, or it ends too early ({error})") from None
            except OSError as error:
                raise NoReply(f"the connection broke before the end of the answer ({error})") from None

    def _send(self, data: bytes | None) -> None:
        self.socket.settimeout(max(self._deadline - time.monotonic(), 0.001))
        self.socket.sendall(data or b"")

    def _readable(self, seconds: float) -> bool:
        return bool(select.select([self.socket], [], [], seconds)[0])


class _ReceivedBody:
    """The parts of a body as they come; ``began`` is the time at which the request was sent."""

    def __init__(self, began: float) -> None:
        self.kept, self.length = bytearray(), 0
        self.arrivals: list[float] = []
        self._began = began

    def add(self, part: bytes) -> None:
        """Raises NoReply if the body does not end."""
        self.length += len(part)
        if self.length > MOST_BYTES:
            raise NoReply(f"the answer still goes on after {MOST_BYTES} bytes")
        self.kept += part[: max(KEPT_BYTES - len(self.kept), 0)]
        if len(self.arrivals) == MOST_ARRIVALS:
            self.arrivals.pop()
        self.arrivals.append(time.monotonic() - self._began)


def ask_once(address: tuple[str, int], request: RawRequest, timeout_seconds: float) -> RawReply:
    """Sends one request on a connection of its own. Raises NoReply."""
    with RawConnection(address) as connection:
        return connection.ask(request, timeout_seconds)
