"""One keep-alive HTTP/1.1 connection to /invocations, as lean as a driver of many requests needs it."""

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from tfs_proxy.errors import SettingsError
from tfs_proxy.wire.http_answer import BrokenAnswer, Reply, read_reply

CONNECT_SECONDS = 10.0
INVOCATIONS = "/invocations"
EXECUTION_PARAMETERS = "/execution-parameters"
_SMALL_BODY_BYTES = 64 * 1024
_READ_BYTES = 256 * 1024

Body = bytes | Callable[[], Iterable[bytes]]
"""What is sent: bytes, or what makes an iterable of pieces to stream in chunks."""


class NotAnswered(Exception):
    """The connection broke, or what came was no HTTP."""


class NotConnected(NotAnswered):
    """Nobody listens there."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server is: ``path`` is that of /invocations."""

    host: str
    port: int
    path: str
    tls: bool = False

    @classmethod
    def parse(cls, url: str) -> "Endpoint":
        """Read ``http://HOST:PORT`` with or without a path. Raises SettingsError."""
        parts: SplitResult = urlsplit(url if "://" in url else f"http://{url}")
        try:
            port = parts.port
        except ValueError:
            port = None
            parts = parts._replace(scheme="")
        fit = url.isascii() and url.isprintable() and " " not in url
        if not fit or parts.scheme not in {"http", "https"} or not parts.hostname:
            raise SettingsError(f"--endpoint {url} can't be used: it must be http://HOST:PORT.")
        tls = parts.scheme == "https"
        path = parts.path.rstrip("/") or INVOCATIONS
        return cls(parts.hostname, port or (443 if tls else 80), path, tls)

    @property
    def authority(self) -> str:
        """HOST:PORT, as the Host header has it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def parameters_path(self) -> str:
        """Where its execution parameters are."""
        return self.path.rpartition("/")[0] + EXECUTION_PARAMETERS


class Connection:
    """Opens when it is used first, and again when the server has closed it. Not for two threads at once."""

    def __init__(
        self, endpoint: Endpoint, timeout_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._endpoint = endpoint
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._socket: socket.socket | None = None
        self._used = False

    def post(self, head: bytes, body: Body) -> Reply:
        """POST ``body``; ``head`` is the request's head up to what says its length.

        Raises NotConnected, NotAnswered, and TimeoutError where the answer is not complete in time.
        """
        if self._used and isinstance(body, bytes):
            # The server may have closed an idle connection: then nothing was done, and it goes out again.
            with contextlib.suppress(_Stale):
                return self._exchange(head, body)
        return self._exchange_anew(head, body)

    def get(self, path: str) -> Reply:
        """GET ``path``; raises as `post` does."""
        head = f"GET {path} HTTP/1.1\r\nHost: {self._endpoint.authority}\r\n\r\n".encode()
        self.close()
        try:
            return self._deliver(lambda sock: sock.sendall(head))
        except _Stale as error:
            raise NotAnswered(str(error)) from error

    def close(self) -> None:
        """Close it; it opens again when it is used."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._used = False

    def _exchange_anew(self, head: bytes, body: Body) -> Reply:
        self.close()
        try:
            return self._exchange(head, body)
        except _Stale as error:
            raise NotAnswered(str(error)) from error

    def _exchange(self, head: bytes, body: Body) -> Reply:
        if isinstance(body, bytes):
            return self._deliver(lambda sock: _send(sock, head, body))
        return self._deliver(lambda sock: _send_chunks(sock, head, body()))

    def _deliver(self, send: Callable[[socket.socket], None]) -> Reply:
        deadline = self._clock() + self._timeout_seconds
        sock = self._socket or self._open()
        kept = False
        try:
            refused: OSError | None = None
            try:
                send(sock)
            except TimeoutError:
                raise
            except OSError as error:
                refused = error  # a server may refuse a large body before it has read it all
            answer = self._read(sock, deadline, refused)
            kept = answer.keeps and refused is None
        except TimeoutError as error:
            raise TimeoutError(f"no answer within {self._timeout_seconds:g} seconds") from error
        else:
            return answer
        finally:
            if kept:
                self._used = True
            else:
                self.close()

    def _open(self) -> socket.socket:
        try:
            sock = socket.create_connection((self._endpoint.host, self._endpoint.port), CONNECT_SECONDS)
        except OSError as error:
            raise NotConnected(
                f"{self._endpoint.authority} can't be reached: {error.strerror or error}"
            ) from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._endpoint.tls:
            try:
                sock = ssl.create_default_context().wrap_socket(sock, server_hostname=self._endpoint.host)
            except OSError as error:
                sock.close()
                raise NotConnected(f"{self._endpoint.authority} can't be reached by TLS: {error}") from error
        sock.settimeout(self._timeout_seconds)
        self._socket = sock
        return sock

    def _read(self, sock: socket.socket, deadline: float, refused: OSError | None) -> Reply:
        receive = _Receiving(sock, deadline, self._clock)
        try:
            return read_reply(receive)
        except ConnectionError as error:
            if not receive.began:
                raise _Stale("the server closed the connection without an answer") from refused or error
            raise NotAnswered("the server broke off its answer") from error
        except BrokenAnswer as error:
            raise NotAnswered(f"the server's answer is no HTTP: {error}") from error
        finally:
            receive.end()


class _Stale(Exception):
    """The server closed the connection before any byte of an answer."""


class _Receiving:
    """Gives the bytes of one answer, until ``deadline``; the first wait has the socket's own timeout."""

    def __init__(self, sock: socket.socket, deadline: float, clock: Callable[[], float]) -> None:
        self._socket = sock
        self._deadline = deadline
        self._clock = clock
        self._timeout_seconds = sock.gettimeout()
        self._timed = False
        self.began = False

    def __call__(self) -> bytes:
        """The next bytes; none where the server ended it. Raises TimeoutError and ConnectionError."""
        if self.began:
            remaining = self._deadline - self._clock()
            if remaining <= 0:
                raise TimeoutError
            self._socket.settimeout(remaining)
            self._timed = True
        data = self._socket.recv(_READ_BYTES)
        self.began = self.began or bool(data)
        return data

    def end(self) -> None:
        """Give the socket its own timeout back."""
        if self._timed:
            self._socket.settimeout(self._timeout_seconds)


def _send(sock: socket.socket, head: bytes, body: bytes) -> None:
    head = b"%sContent-Length: %d\r\n\r\n" % (head, len(body))
    if len(body) <= _SMALL_BODY_BYTES:
        sock.sendall(head + body)
    else:
        sock.sendall(head)
        sock.sendall(body)


def _send_chunks(sock: socket.socket, head: bytes, pieces: Iterable[bytes]) -> None:
    sock.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
    for piece in pieces:
        if piece:
            sock.sendall(b"%x\r\n" % len(piece))
            sock.sendall(piece)
            sock.sendall(b"\r\n")
    sock.sendall(b"0\r\n\r\n")
