"""Asking the supervisor at its control API, a unix socket, which model servers there are."""

import http.client
import socket
from pathlib import Path

from tfs_proxy.deployment import Deployment
from tfs_proxy.errors import UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.upstream.interface import OK

TIMEOUT_SECONDS = 5.0


class UnixConnection(http.client.HTTPConnection):
    """HTTP/1.1 over a unix socket."""

    def __init__(self, path: Path, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        super().__init__("localhost", timeout=timeout_seconds)
        self._path = path

    def connect(self) -> None:
        """Open the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def fetch_deployment(control_socket: Path, timeout_seconds: float = TIMEOUT_SECONDS) -> Deployment:
    """The deployment of this run, by ``GET /deployment``.

    Raises UpstreamUnavailable where the supervisor can't be reached or has none yet, and
    UpstreamTimeout where it does not answer in time.
    """
    status, body = _get(control_socket, "/deployment", timeout_seconds)
    if status != OK:
        raise UpstreamUnavailable(f"The supervisor has no deployment yet (it answered {status}).")
    try:
        return Deployment.from_json(body)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UpstreamUnavailable("The supervisor's deployment can't be read.") from error


def ping(control_socket: Path, timeout_seconds: float = TIMEOUT_SECONDS) -> tuple[int, bytes]:
    """Status and body that the supervisor answers to ``GET /ping``; raises as `fetch_deployment`."""
    return _get(control_socket, "/ping", timeout_seconds)


def released(control_socket: Path, timeout_seconds: float = TIMEOUT_SECONDS) -> bool:
    """Whether the supervisor lets workers accept requests: all is ready. False where it can't be reached."""
    try:
        return _get(control_socket, "/released", timeout_seconds)[0] == OK
    except (UpstreamUnavailable, UpstreamTimeout):
        return False


def settled(control_socket: Path, timeout_seconds: float = TIMEOUT_SECONDS) -> bool:
    """Whether no model server is away for now; True where nobody can tell, so that nobody waits."""
    try:
        return _get(control_socket, "/settled", timeout_seconds)[0] == OK
    except (UpstreamUnavailable, UpstreamTimeout):
        return True


def _get(control_socket: Path, path: str, timeout_seconds: float) -> tuple[int, bytes]:
    connection = UnixConnection(control_socket, timeout_seconds)
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        response = connection.getresponse()
        return response.status, response.read()
    except TimeoutError as error:
        raise UpstreamTimeout(f"The supervisor did not answer within {timeout_seconds:g} seconds.") from error
    except (OSError, http.client.HTTPException) as error:
        raise UpstreamUnavailable("The supervisor can't be reached.") from error
    finally:
        connection.close()
