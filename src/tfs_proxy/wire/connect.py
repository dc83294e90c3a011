"""Opens connections over TCP, TLS or a unix socket, and tells whether one can be used again."""

import _socket
import select
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

Connection = socket.socket
Connect = Callable[[str, int, float | None], socket.socket]
"""Function that connects to host and port within a time in seconds, None for any. Raises OSError."""

_LOOPBACK = "127.0.0.1"
_TIMEVAL = struct.Struct("ll").pack
_SO_MEMINFO = 55
"""Linux's option for a socket's memory; the first of its numbers is that of unread data."""

_NO_BYTES = bytes(4)
ESTABLISHED = b"\x01"
"""The first byte of Linux's TCP_INFO for a connection that neither side has ended."""


def connect_tcp(host: str, port: int, timeout_seconds: float | None) -> socket.socket:
    """Open a TCP connection that sends small packets at once; it has no timeout yet."""
    if host != _LOOPBACK:
        connection = socket.create_connection((host, port), timeout_seconds)
    else:  # to resolve a name, even an address, Python imports its tables for internationalized names
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout_seconds)
            connection.connect((host, port))
        except OSError:
            connection.close()
            raise
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def trusting(ca: str | None) -> ssl.SSLContext:
    """Make a context that trusts the CAs in a PEM file; None stands for the system's. Raises ValueError."""
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        reason = f"{error.strerror or error}"
        raise ValueError(f"{ca} can't be used: it must be a PEM file of CAs ({reason})") from error


def connect_tls(host: str, port: int, timeout_seconds: float | None, ca: str | None = None) -> socket.socket:
    """Open a TLS connection to a server whose certificate names ``host``, by a CA that is trusted."""
    connection = connect_tcp(host, port, timeout_seconds)
    try:
        connection.settimeout(timeout_seconds)
        return trusting(ca).wrap_socket(connection, server_hostname=host)
    except OSError:
        connection.close()
        raise


def connect_unix(path: Path) -> Connect:
    """Make a function that connects to the unix socket at ``path``; it ignores host and port."""

    def connect(_host: str, _port: int, timeout_seconds: float | None) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout_seconds)
            connection.connect(str(path))
            connection.settimeout(None)
        except OSError:
            connection.close()
            raise
        return connection

    return connect


def end(connection: Connection) -> None:
    """Close a connection from which another thread may be reading."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def has_unread(connection: socket.socket | int) -> bool:
    """True if an idle connection has data, or has ended."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def has_unread_tcp(connection: socket.socket) -> bool:
    """`has_unread` for a TCP connection, but faster.

    PERF: a poll releases the interpreter's lock, and waits for it behind all threads that want it, which
    costs a small request 4 %. These two system calls do not.
    """
    try:
        # An end that came with the answer has been read: only the connection's state tells.
        if connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, len(ESTABLISHED)) != ESTABLISHED:
            return True
        return connection.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, len(_NO_BYTES)) != _NO_BYTES
    except (AttributeError, OSError):  # not on Linux
        return has_unread(connection)


def set_timeout(connection: socket.socket, seconds: float | None, option: int) -> None:
    """Limits how long a step may take; then it raises BlockingIOError or TimeoutError. None is no limit.

    PERF: with a timeout of Python's own every step takes two system calls, and releases the interpreter's
    lock twice, which costs more than the step if many threads want it. So the kernel keeps the time.
    """
    # OpenSSL takes the kernel's timeout for a reason to try again, endlessly; gevent has its own sockets.
    if isinstance(connection, _socket.socket) and not isinstance(connection, ssl.SSLSocket):
        microseconds = 0 if seconds is None else max(1, int(seconds * 1e6))
        connection.setsockopt(socket.SOL_SOCKET, option, _TIMEVAL(*divmod(microseconds, 1_000_000)))
    else:
        connection.settimeout(seconds)
