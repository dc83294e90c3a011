"""Readiness: what /ping says at every stage, from what the supervisor was told."""

import asyncio
import json
import signal
from typing import Any

import pytest

from support.clock import Clock
from tfs_proxy.run.heartbeats import Heartbeats
from tfs_proxy.run.model_states import MISSES, ModelStates, ServableState, read_status
from tfs_proxy.run.readiness import Readiness
from tfs_proxy.values.deployment import Instance, WorkerPhase, WorkerState
from tfs_proxy.values.errors import UpstreamTimeout
from tfs_proxy.wire.http_messages import HttpResponse

INSTANCE = Instance(0, rest_port=1, grpc_port=2, grpc_socket="")
AVAILABLE = ServableState("AVAILABLE")


def serving(pid: int, **more: Any) -> WorkerState:
    return WorkerState(pid, WorkerPhase.SERVES, **more)


def health_of(versions: dict[str, list[int]]) -> Readiness:
    """A run that serves ``versions`` on one instance."""
    states = ModelStates()
    states.expect([INSTANCE], versions)
    return Readiness(Heartbeats(), states)


def test_every_version_must_be_available_and_a_worker_alive() -> None:
    """One missing version, worker or process is enough for a reason."""
    readiness = health_of({"a": [1, 2]})
    states = readiness.states

    assert readiness.reason() == "starting"
    readiness.begin_serving()
    assert "no worker" in str(readiness.reason())
    readiness.heartbeats.hear(serving(17))
    assert "does not answer" in str(readiness.reason())
    states.note(0, "a", {1: AVAILABLE, 2: ServableState("LOADING", "the first try failed")})
    assert (readiness.reason(), states.failure()) == (
        "model a version 2 is LOADING: the first try failed",
        None,
    )
    assert not readiness.loaded()
    states.note(0, "a", {1: AVAILABLE, 2: AVAILABLE})
    assert readiness.reason() is None
    assert readiness.loaded()


def test_a_model_whose_versions_come_and_go_is_there_while_any_version_is() -> None:
    """A new version may load or fail beside it; a model that was taken away as asked is not missed."""
    readiness = health_of({"a": []})
    states = readiness.states
    unloaded, broken = ServableState("END"), ServableState("END", "no such op")

    states.note(0, "a", {})
    assert states.missing() == "model a is not loaded: the model server has found no version of it"
    assert (
        readiness.reason() == "starting; model a is not loaded: the model server has found no version of it"
    )
    states.note(0, "a", {1: AVAILABLE, 2: ServableState("LOADING")})
    assert states.missing() is None
    states.note(0, "a", {1: unloaded, 2: ServableState("LOADING")})
    assert states.missing() == "model a is LOADING"
    states.note(0, "a", {1: AVAILABLE, 2: broken})
    assert (states.missing(), states.failure()) == (None, None)
    states.note(0, "a", {1: unloaded, 2: broken})
    assert states.failure() == "model a can't be loaded: no such op"
    states.note(0, "a", {1: unloaded})
    assert states.missing() is None
    states.lose(0)
    assert "does not answer" in str(states.missing())


@pytest.mark.parametrize(
    ("state", "code", "message", "told"),
    [
        ("AVAILABLE", "OK", "", ""),
        ("END", "NOT_FOUND", "gone", "gone"),
        ("END", "RESOURCE_EXHAUSTED", "no room", "RESOURCE_EXHAUSTED: no room"),
        ("END", "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED: no room", "RESOURCE_EXHAUSTED: no room"),
    ],
)
def test_a_status_answer_is_read_by_version(state: str, code: str, message: str, told: str) -> None:
    """The JSON that TF Serving answers; a lack of resources is told by its code, once."""
    status = {"error_code": code, "error_message": message}
    body = {"model_version_status": [{"version": "3", "state": state, "status": status}]}

    assert read_status(json.dumps(body).encode()) == {3: ServableState(state, told)}


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'{"model_version_status":[{}]}', b'{"error":"x"}', b"\xff"]
)
def test_an_answer_that_is_no_status_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError):
        read_status(body)


@pytest.mark.parametrize("turns", range(6))
def test_the_watch_ends_when_it_is_told_to(turns: int) -> None:
    async def ended() -> bool:
        states = ModelStates()
        watching = asyncio.create_task(states.forever())
        await asyncio.sleep(0.01)
        states.disturbed.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        watching.cancel()
        await asyncio.wait({watching}, timeout=10)
        was_cancelled = watching.cancelled()
        watching.cancel()
        return was_cancelled

    assert asyncio.run(ended())


@pytest.mark.parametrize("answers_grpc", [True, False])
def test_a_model_server_whose_rest_threads_are_all_busy_is_there(answers_grpc: bool) -> None:
    """Slow requests may keep all of them: it is away only if it does not answer over gRPC either."""

    async def busy(_host: str, _port: int, _path: str, _seconds: float) -> HttpResponse:
        raise UpstreamTimeout("no answer in time")

    async def watched() -> str | None:
        states = ModelStates(get=busy, answers=lambda _, _seconds: answers_grpc)
        states.expect([INSTANCE], {"m": [1]})
        states.note(0, "m", {1: AVAILABLE})
        for _ in range(MISSES):
            await states.refresh(["m"])
        return states.missing()

    missing = asyncio.run(watched())
    assert missing is None if answers_grpc else "does not answer" in str(missing)


def hanging(pid: int) -> WorkerState:
    return serving(pid, line="inference.py:3 in handler", hangs=True, stuck=1)


def test_a_worker_that_hangs_leaves_once_another_serves() -> None:
    """Each of them, as soon as there are enough others; one that hangs is no reason for /ping."""
    heartbeats = Heartbeats(wanted=2)
    for state in (hanging(1), hanging(2)):
        heartbeats.hear(state)
    assert (heartbeats.let_leave(1), heartbeats.let_leave(2)) == (False, False)

    heartbeats.hear(serving(3))
    assert heartbeats.reason() is None
    assert (heartbeats.let_leave(3), heartbeats.let_leave(2), heartbeats.let_leave(1)) == (False, True, False)
    heartbeats.hear(serving(4))
    assert (heartbeats.let_leave(1), heartbeats.let_leave(2)) == (True, True)


def test_a_worker_that_is_silent_is_ended() -> None:
    """SIGABRT comes first; a pause of the supervisor itself is nobody's silence."""
    clock = Clock()
    heartbeats = Heartbeats(wanted=2, timeout_seconds=15, clock=clock)
    heartbeats.hear(serving(1))
    heartbeats.hear(serving(2))
    told = []
    for clock.now in (2.0, 6.0, 11.0, 14.0, 15.5, 16.0, 17.0):
        heartbeats.hear(serving(2))
        told.append(dict(heartbeats.take_overdue()))
    assert told == [{}, {}, {}, {}, {1: signal.SIGABRT}, {}, {1: signal.SIGKILL}]
    assert heartbeats.reason() == "1 of 2 workers send heartbeats"
    heartbeats.drop(1)

    clock.now = 100.0
    assert heartbeats.take_overdue() == {}
