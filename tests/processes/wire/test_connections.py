"""The HTTP client over real sockets: TLS, unix sockets and bodies in pieces."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from support.certificates import Authority
from tfs_proxy.values.errors import NotReached, UpstreamUnavailable
from tfs_proxy.wire.connect import connect_tls, connect_unix
from tfs_proxy.wire.http_client import ConnectionPool, get

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Handle = Callable[[socket.socket], None]


@contextmanager
def serving(listener: socket.socket, handle: Handle) -> Iterator[None]:
    """Call ``handle`` with every connection, each in a thread, until the block ends."""
    ended = threading.Event()

    def serve_one(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            handle(connection)

    def accept() -> None:
        while not ended.is_set():
            with suppress(OSError):
                connection, _ = listener.accept()
                threading.Thread(target=serve_one, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def answer_all(connection: socket.socket) -> None:
    """Answer each request that fits into one read."""
    while connection.recv(65536):
        connection.sendall(ANSWER)


@contextmanager
def tls_server(authority: Authority, handle: Handle) -> Iterator[int]:
    """A TLS server on localhost; its port."""
    context, key = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), authority.sign("server")
    context.load_cert_chain(key.with_suffix(".crt"), key)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def secured(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as session:
            handle(session)

    with serving(listener, secured):
        yield port


def test_tls_connections_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two requests share a handshake, with a server whose certificate is trusted."""
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    handshakes: list[None] = []

    def count(session: socket.socket) -> None:
        handshakes.append(None)
        answer_all(session)

    with (
        tls_server(authority, count) as port,
        closing(ConnectionPool("localhost", port, 60, connect=connect_tls)) as connections,
    ):
        bodies = [connections.request("POST", "/", b"x", {}).body for _ in range(2)]

    assert bodies == [b"ok", b"ok"]
    assert len(handshakes) == 1


def test_a_tls_server_that_is_not_trusted_is_not_reached(tmp_path: Path) -> None:
    """No byte of a request goes to a server with a certificate of its own making."""
    with tls_server(Authority(tmp_path), answer_all) as port, pytest.raises(NotReached) as caught:
        get("localhost", port, "/", 60, connect=connect_tls)

    assert isinstance(caught.value.__cause__, ssl.SSLCertVerificationError)


def test_a_unix_socket(tmp_path: Path) -> None:
    """A server behind a unix socket answers; without one it can't be reached, and the error names it."""
    path = tmp_path / "socket"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    with serving(listener, answer_all):
        assert get("localhost", 80, "/", 60, connect=connect_unix(path)).body == b"ok"
    with pytest.raises(NotReached, match="The supervisor can't be reached"):
        get("localhost", 80, "/", 60, connect=connect_unix(tmp_path / "none"), server="The supervisor")


def read_to_the_last_chunk(connection: socket.socket) -> bytes:
    """A whole request whose body is in chunks."""
    received = b""
    while not received.endswith(b"0\r\n\r\n"):
        part = connection.recv(65536)
        if not part:
            break
        received += part
    return received


def test_a_body_in_pieces_is_sent_in_chunks_on_a_connection_of_its_own() -> None:
    """Empty pieces are left out, since an empty chunk would end the body."""
    seen: list[tuple[int, bytes]] = []

    def note(connection: socket.socket) -> None:
        while request := read_to_the_last_chunk(connection):
            seen.append((connection.getpeername()[1], request))
            connection.sendall(ANSWER)

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with serving(listener, note), closing(ConnectionPool("127.0.0.1", port, 60)) as connections:
        for _ in range(2):
            response = connections.request("POST", "/in", lambda: iter([b"ab", b"", b"c" * 20]), {})
            assert response.body == b"ok"

    assert len({peer for peer, _ in seen}) == 2
    assert all(b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n14\r\n" + b"c" * 20 in sent for _, sent in seen)


def test_a_body_in_pieces_goes_out_once() -> None:
    """A server that ends the connection without an answer gets no second copy of a stream."""
    begun: list[None] = []

    def pieces() -> Iterator[bytes]:
        begun.append(None)
        yield b"abc"

    def read_and_close(connection: socket.socket) -> None:
        read_to_the_last_chunk(connection)

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with (
        serving(listener, read_and_close),
        closing(ConnectionPool("127.0.0.1", port, 60)) as connections,
        pytest.raises(UpstreamUnavailable, match="closed the connection without an answer"),
    ):
        connections.request("POST", "/", pieces, {})

    assert len(begun) == 1


def test_an_answer_before_the_end_of_a_stream_counts() -> None:
    """A server may refuse a body that it has not read: its words reach the caller."""
    refusal = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig"

    def refuse(connection: socket.socket) -> None:
        connection.recv(10)
        connection.sendall(refusal)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with serving(listener, refuse), closing(ConnectionPool("127.0.0.1", port, 60)) as connections:
        response = connections.request("POST", "/", lambda: [b"x" * 65536] * 64, {})

    assert (response.status, response.body) == (413, b"big")
