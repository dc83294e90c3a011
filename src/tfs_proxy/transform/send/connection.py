"""The address of the server of a batch job."""

import socket
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from tfs_proxy.errors import SettingsError
from tfs_proxy.observe.routes import INVOCATIONS
from tfs_proxy.wire.connect import authority, connect_tcp, connect_tls


class EndpointAddress(Struct, frozen=True):
    """The address of a server; ``path`` is that of /invocations."""

    host: str
    port: int
    path: str
    tls: bool = False

    @classmethod
    def parse(cls, url: str) -> "EndpointAddress":
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

    def connect(self, host: str, port: int, timeout_seconds: float | None) -> socket.socket:
        """Open a connection. Raises EndpointNotReached."""
        try:
            return (connect_tls if self.tls else connect_tcp)(host, port, timeout_seconds)
        except OSError as error:
            reason = f" by TLS: {error}" if self.tls else f": {error.strerror or error}"
            raise EndpointNotReached(f"{authority(host, port)} can't be reached{reason}") from error

    def beside(self, path: str) -> str:
        """The path of another page of the server, which has ``path`` beside /invocations."""
        return self.path.rpartition("/")[0] + path


class EndpointNotReached(Exception):
    """Nothing accepts connections at the endpoint, or TLS with it fails; the text has the reason."""
