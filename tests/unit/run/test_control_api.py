"""The control API: what workers, commands and clients get from it."""

import asyncio
from collections.abc import Mapping

import pytest

from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.run.control_api import ControlApi
from tfs_proxy.run.heartbeats import Heartbeats
from tfs_proxy.run.readiness import Readiness
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.wire.header_names import IN_FLIGHT
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse


class Served:
    """A stack that is starting."""

    def __init__(self) -> None:
        self.readiness = Readiness(Heartbeats())
        self.deployment: Deployment | None = None


def ask(door: ControlApi, method: str, path: str, body: bytes = b"") -> HttpResponse:
    """One question at the unix socket's side."""
    return asyncio.run(door.respond(HttpRequest(method, path, body=body)))


def test_who_comes_before_the_workers_gets_an_id() -> None:
    """The one by which the request is logged."""
    noted: list[tuple[int, str]] = []

    async def first_answers() -> list[tuple[int, str | None]]:
        door = ControlApi(Served())
        await door.stand_in((), lambda request, request_id: noted.append((request.status, request_id)))
        asked = [
            await door.respond_early(HttpRequest("POST", "/invocations", {"x-request-id": request_id}))
            for request_id in ("mine", "a b")
        ]
        return [(answer.status, answer.header("X-Request-Id")) for answer in asked]

    assert asyncio.run(first_answers()) == noted
    assert noted[0] == (503, "mine")


@pytest.mark.parametrize("count", ["7", "7" * 5000])
def test_no_client_says_how_many_requests_there_are(count: str) -> None:
    """Only nginx may, whose scrapes come another way."""
    scrapes: list[Mapping[str, str]] = []

    def measure(headers: Mapping[str, str]) -> list[MeasuredMetric]:
        scrapes.append(headers)
        return []

    door = ControlApi(Served(), measure=measure)
    asyncio.run(
        door.respond_early(HttpRequest("GET", "/metrics", {IN_FLIGHT.lower(): count, "accept": "*/*"}))
    )

    assert scrapes == [{"accept": "*/*"}]


@pytest.mark.parametrize(
    "body", [b"{", b"{}", b"\xff", b'{"pid": "1"}', b'{"pid": 1, "phase": "x"}', b"[" * 3000]
)
def test_a_state_that_no_worker_sends_is_refused(body: bytes) -> None:
    """A script can write to the socket, too."""
    stack = Served()

    assert ask(ControlApi(stack), "POST", "/workers", body).status == 400
    assert not stack.readiness.heartbeats.alive
