"""Requests of workers to the supervisor, at the unix socket of its control API."""

from collections.abc import Mapping
from contextlib import closing
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

from msgspec import DecodeError
from msgspec.json import decode, encode

from tfs_proxy.values.deployment import Deployment, StreamReport, WorkerOrder, WorkerState
from tfs_proxy.values.errors import UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.wire.connect import connect_unix
from tfs_proxy.wire.http_client import ConnectionPool, Timeouts, get
from tfs_proxy.wire.http_messages import HttpResponse
from tfs_proxy.wire.routes import DEPLOYMENT, HEARTBEAT, METRICS, PING, SETTLED, STREAMS

TIMEOUT_SECONDS = 5.0


def fetch_deployment(control_socket: Path, timeout_seconds: float = TIMEOUT_SECONDS) -> Deployment:
    """Fetch the deployment of this run, by ``GET /deployment``.

    Raises UpstreamUnavailable if the supervisor can't be reached or has none yet, and UpstreamTimeout
    if it does not answer in time.
    """
    status, body = _get(control_socket, DEPLOYMENT.path, timeout_seconds)
    if status != HTTPStatus.OK:
        raise UpstreamUnavailable(f"The supervisor has no deployment yet (it answered {status}).")
    try:
        return Deployment.from_json(body)
    except ValueError as error:
        raise UpstreamUnavailable("The supervisor's deployment can't be read.") from error


def ping(control_socket: Path, timeout_seconds: float = TIMEOUT_SECONDS) -> tuple[int, bytes]:
    """Status and body of the supervisor's answer to ``GET /ping``; raises as `fetch_deployment`."""
    return _get(control_socket, PING.path, timeout_seconds)


def metrics(
    control_socket: Path, accept: str | None, timeout_seconds: float = TIMEOUT_SECONDS
) -> HttpResponse:
    """Ask the supervisor for ``GET /metrics``, in the form that ``accept`` asks for; raises as `ping`."""
    return _ask(control_socket, METRICS.path, timeout_seconds, {} if accept is None else {"Accept": accept})


def ask(control_socket: Path, method: str, path: str, body: bytes) -> HttpResponse:
    """Pass a client's request on to the supervisor; raises as `ping`."""
    timeouts = Timeouts(TIMEOUT_SECONDS, connect_seconds=TIMEOUT_SECONDS)
    connect = connect_unix(control_socket)
    with closing(
        ConnectionPool("localhost", 80, timeouts, idle=0, connect=connect, server="The supervisor")
    ) as connections:
        return connections.request(method, quote(path), body or None, {"Connection": "close"})


def report_state(control_socket: Path, state: WorkerState) -> WorkerOrder:
    """Tell the supervisor a worker's state; one that is ready waits for its release, but not for long.

    Raises as `ping`.
    """
    answer = ask(control_socket, "POST", HEARTBEAT.path, encode(state))
    try:
        return decode(answer.body, type=WorkerOrder)
    except DecodeError as error:
        raise UpstreamUnavailable(f"The supervisor answered {answer.status}.") from error


def report_streams(control_socket: Path, report: StreamReport) -> None:
    """Tell the supervisor of a process's streams; raises as `ping`."""
    ask(control_socket, "POST", STREAMS.path, encode(report))


def settled(control_socket: Path, timeout_seconds: float = TIMEOUT_SECONDS) -> bool:
    """True if no model server is away for now; also if the supervisor can't tell, so that no worker waits."""
    try:
        return _get(control_socket, SETTLED.path, timeout_seconds)[0] == HTTPStatus.OK
    except (UpstreamUnavailable, UpstreamTimeout):
        return True


def _get(control_socket: Path, path: str, timeout_seconds: float) -> tuple[int, bytes]:
    response = _ask(control_socket, path, timeout_seconds, {})
    return response.status, response.body


def _ask(control_socket: Path, path: str, timeout_seconds: float, headers: Mapping[str, str]) -> HttpResponse:
    connect = connect_unix(control_socket)
    return get("localhost", 80, path, timeout_seconds, headers, connect=connect, server="The supervisor")
