"""Requests of workers to the supervisor, at the unix socket of its control API."""

from collections.abc import Mapping
from contextlib import closing
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

from msgspec import DecodeError
from msgspec.json import decode, encode

from tfs_proxy.values.deployment import Deployment, WorkerOrder, WorkerState
from tfs_proxy.values.errors import UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.wire.connect import connect_unix
from tfs_proxy.wire.http_client import ConnectionPool
from tfs_proxy.wire.http_messages import HttpResponse
from tfs_proxy.wire.routes import DEPLOYMENT, HEARTBEAT, SETTLED

TIMEOUT_SECONDS = 5.0


def fetch_deployment(control_socket: Path) -> Deployment:
    """Fetch the deployment of this run, by ``GET /deployment``.

    Raises UpstreamUnavailable if the supervisor can't be reached or has none yet, and UpstreamTimeout
    if it does not answer in time.
    """
    answer = ask(control_socket, "GET", DEPLOYMENT.path)
    if answer.status != HTTPStatus.OK:
        raise UpstreamUnavailable(f"The supervisor has no deployment yet (it answered {answer.status}).")
    try:
        return Deployment.from_json(answer.body)
    except ValueError as error:
        raise UpstreamUnavailable("The supervisor's deployment can't be read.") from error


def ask(
    control_socket: Path, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> HttpResponse:
    """Send a request, a client's or an own one, to the supervisor.

    Raises UpstreamUnavailable and UpstreamTimeout.
    """
    connect = connect_unix(control_socket)
    pool = ConnectionPool("localhost", 80, TIMEOUT_SECONDS, idle=0, connect=connect, server="The supervisor")
    with closing(pool) as connections:
        sent = {"Connection": "close", **(headers or {})}
        return connections.request(method, quote(path), body or None, sent)


def report_state(control_socket: Path, state: WorkerState) -> WorkerOrder:
    """Tell the supervisor a worker's state; one that is ready waits for its release, but not for long.

    Raises as `ask`.
    """
    answer = ask(control_socket, "POST", HEARTBEAT.path, encode(state))
    try:
        return decode(answer.body, type=WorkerOrder)
    except DecodeError as error:
        raise UpstreamUnavailable(f"The supervisor answered {answer.status}.") from error


def settled(control_socket: Path) -> bool:
    """True if no model server is away for now; also if the supervisor can't tell, so that no worker waits."""
    try:
        return ask(control_socket, "GET", SETTLED.path).status == HTTPStatus.OK
    except (UpstreamUnavailable, UpstreamTimeout):
        return True
