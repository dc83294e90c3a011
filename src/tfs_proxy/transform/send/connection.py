"""The address of the server of a batch job, and the HTTP client for it."""

import socket
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from tfs_proxy.errors import SettingsError
from tfs_proxy.wire.connect import authority, connect_tcp, connect_tls
from tfs_proxy.wire.connections import ConnectionPool, Timeouts

CONNECT_SECONDS = 10.0
INVOCATIONS = "/invocations"
EXECUTION_PARAMETERS = "/execution-parameters"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a server; ``path`` is that of /invocations."""

    host: str
    port: int
    path: str
    tls: bool = False

    @classmethod
    def parse(cls, url: str) -> "Endpoint":
        """Read ``http://HOST:PORT`` with or without a path; raises SettingsError."""
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
        return authority(self.host, self.port)

    @property
    def parameters_path(self) -> str:
        """The path of its execution parameters."""
        return self.path.rpartition("/")[0] + EXECUTION_PARAMETERS


class EndpointNotReached(Exception):
    """Nothing accepts connections at the endpoint, or TLS with it fails; the text has the reason."""


def connections(endpoint: Endpoint, timeout_seconds: float, idle: int = 0) -> ConnectionPool:
    """The HTTP client of an endpoint, which keeps ``idle`` connections for the next requests.

    Its requests raise EndpointNotReached if no connection opens.
    """
    return ConnectionPool(
        endpoint.host,
        endpoint.port,
        Timeouts(timeout_seconds, CONNECT_SECONDS, timeout_seconds),
        idle=idle,
        connect=_connect_tls if endpoint.tls else _connect_tcp,
        server=endpoint.authority,
    )


def _connect_tcp(host: str, port: int, timeout_seconds: float | None) -> socket.socket:
    try:
        return connect_tcp(host, port, timeout_seconds)
    except OSError as error:
        reason = error.strerror or error
        raise EndpointNotReached(f"{authority(host, port)} can't be reached: {reason}") from error


def _connect_tls(host: str, port: int, timeout_seconds: float | None) -> socket.socket:
    try:
        return connect_tls(host, port, timeout_seconds)
    except OSError as error:
        raise EndpointNotReached(f"{authority(host, port)} can't be reached by TLS: {error}") from error
