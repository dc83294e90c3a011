"""Opens a connection to a server: over TCP, TLS or a unix socket."""

import socket
import ssl
from collections.abc import Callable
from pathlib import Path

Connect = Callable[[str, int, float | None], socket.socket]
"""Opens a connection to host and port, within a time in seconds, None for any; raises OSError."""


def connect_tcp(host: str, port: int, timeout_seconds: float | None) -> socket.socket:
    """A plain TCP connection, which sends small packets at once; it has no timeout yet."""
    connection = socket.create_connection((host, port), timeout_seconds)
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def connect_tls(host: str, port: int, timeout_seconds: float | None) -> socket.socket:
    """A TLS connection to a server whose certificate names ``host``."""
    connection = connect_tcp(host, port, timeout_seconds)
    try:
        connection.settimeout(timeout_seconds)
        return ssl.create_default_context().wrap_socket(connection, server_hostname=host)
    except OSError:
        connection.close()
        raise


def connect_unix(path: Path) -> Connect:
    """Opens connections to the unix socket at ``path``; host and port are for the Host header alone."""

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


def authority(host: str, port: int) -> str:
    """HOST:PORT, as the Host header has it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
