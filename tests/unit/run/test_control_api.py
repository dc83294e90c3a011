"""The control API: what workers, commands and clients get from it."""

import asyncio

import pytest

from tfs_proxy.run.control_api import ControlApi
from tfs_proxy.run.heartbeats import Heartbeats
from tfs_proxy.run.model_states import ModelStates
from tfs_proxy.run.readiness import Readiness
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse


class Served:
    """A stack that is starting."""

    def __init__(self) -> None:
        self.readiness = Readiness(Heartbeats(), ModelStates())
        self.deployment: Deployment | None = None


def ask(door: ControlApi, method: str, path: str, body: bytes = b"") -> HttpResponse:
    """One question at the unix socket's side."""
    return asyncio.run(door.respond(HttpRequest(method, path, body=body)))


@pytest.mark.parametrize(
    "body", [b"{", b"{}", b"\xff", b'{"pid": "1"}', b'{"pid": 1, "phase": "x"}', b"[" * 3000]
)
def test_a_state_that_no_worker_sends_is_refused(body: bytes) -> None:
    """A script can write to the socket, too."""
    stack = Served()

    assert ask(ControlApi(stack), "POST", "/workers", body).status == 400
    assert not stack.readiness.heartbeats.alive
