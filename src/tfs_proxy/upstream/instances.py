"""What workers ask of the supervisor, at the unix socket of its control API."""

import os
from collections.abc import Mapping
from contextlib import closing
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

from tfs_proxy.deployment import Deployment
from tfs_proxy.errors import UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.wire.connect import connect_unix
from tfs_proxy.wire.connections import ConnectionPool, Timeouts, get
from tfs_proxy.wire.http_messages import HttpResponse

TIMEOUT_SECONDS = 5.0


def fetch_deployment(control_socket: Path, timeout_seconds: float = TIMEOUT_SECONDS) -> Deployment:
    """The deployment of this run, by ``GET /deployment``.

    Raises UpstreamUnavailable if the supervisor can't be reached or has none yet, and UpstreamTimeout
    if it does not answer in time.
    """
    status, body = _get(control_socket, "/deployment", timeout_seconds)
    if status != HTTPStatus.OK:
        raise UpstreamUnavailable(f"The supervisor has no deployment yet (it answered {status}).")
    try:
        return Deployment.from_json(body)
    except ValueError as error:
        raise UpstreamUnavailable("The supervisor's deployment can't be read.") from error


def ping(control_socket: Path, timeout_seconds: float = TIMEOUT_SECONDS) -> tuple[int, bytes]:
    """Status and body that the supervisor answers to ``GET /ping``; raises as `fetch_deployment`."""
    return _get(control_socket, "/ping", timeout_seconds)


def metrics(
    control_socket: Path, accept: str | None, timeout_seconds: float = TIMEOUT_SECONDS
) -> HttpResponse:
    """The supervisor's answer to ``GET /metrics``, in the form that ``accept`` asks for; raises as `ping`."""
    return _ask(control_socket, "/metrics", timeout_seconds, {} if accept is None else {"Accept": accept})


def ask(control_socket: Path, method: str, path: str, body: bytes) -> HttpResponse:
    """The supervisor's answer to a request that a client has sent; raises as `ping`."""
    timeouts = Timeouts(TIMEOUT_SECONDS, connect_seconds=TIMEOUT_SECONDS)
    connect = connect_unix(control_socket)
    with closing(
        ConnectionPool("localhost", 80, timeouts, idle=0, connect=connect, server="The supervisor")
    ) as connections:
        return connections.request(method, quote(path), body or None, {"Connection": "close"})


def released(control_socket: Path, timeout_seconds: float = TIMEOUT_SECONDS) -> bool:
    """Whether the supervisor lets this worker accept requests: all is ready, and its gunicorn serves.

    False if it can't be reached.
    """
    try:
        return _get(control_socket, f"/released/{os.getpgrp()}", timeout_seconds)[0] == HTTPStatus.OK
    except (UpstreamUnavailable, UpstreamTimeout):
        return False


def until_released(control_socket: Path, timeout_seconds: float = TIMEOUT_SECONDS) -> bool:
    """As `released`, but a run that is not ready answers at its release, or after a moment."""
    try:
        return _get(control_socket, f"/until-released/{os.getpgrp()}", timeout_seconds)[0] == HTTPStatus.OK
    except (UpstreamUnavailable, UpstreamTimeout):
        return False


def settled(control_socket: Path, timeout_seconds: float = TIMEOUT_SECONDS) -> bool:
    """Whether no model server is away for now; True if the supervisor can't tell, so that no worker waits."""
    try:
        return _get(control_socket, "/settled", timeout_seconds)[0] == HTTPStatus.OK
    except (UpstreamUnavailable, UpstreamTimeout):
        return True


def _get(control_socket: Path, path: str, timeout_seconds: float) -> tuple[int, bytes]:
    response = _ask(control_socket, path, timeout_seconds, {})
    return response.status, response.body


def _ask(control_socket: Path, path: str, timeout_seconds: float, headers: Mapping[str, str]) -> HttpResponse:
    connect = connect_unix(control_socket)
    return get("localhost", 80, path, timeout_seconds, headers, connect=connect, server="The supervisor")
