"""What the router passes on, seen by a model server that notes everything."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from support.grpc_calls import PREDICT, SECONDS, refusal
from support.grpc_router import Router
from support.waiting import wait_until
from tfs_proxy.wire.protos import PredictRequest

ANSWER = b"\x00\xffnot even protobuf"
SERVICE, METHOD = PREDICT.strip("/").split("/")


def request_for(model: str) -> bytes:
    """A request that only names its model."""
    request = PredictRequest()
    request.model_spec.name = model
    return request.SerializeToString()


class NotingServer:
    """A gRPC server on ``socket``; what a call's message says first decides what becomes of it."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.messages: list[bytes] = []
        self.metadata: dict[str, str | bytes] = {}
        self.seconds_left = 0.0
        self.begun, self.ended, self.goes_on = threading.Event(), threading.Event(), threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(4))
        table = {METHOD: grpc.unary_unary_rpc_method_handler(self._answer)}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, table),))
        self._server.add_insecure_port(f"unix:{socket}")
        self._server.start()

    def _answer(self, message: bytes, context: Any) -> bytes:
        self.messages.append(message)
        self.metadata = dict(context.invocation_metadata())
        self.seconds_left = context.time_remaining()
        context.set_trailing_metadata((("x-own", "told"), ("x-own-bin", b"\x00\x01")))
        if b"refused" in message:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "as it is: ä")
        if b"held" in message:
            context.add_callback(self.ended.set)
            self.begun.set()
            self.goes_on.wait(SECONDS)
        return ANSWER

    def stop(self) -> None:
        """End it at once."""
        self.goes_on.set()
        self._server.stop(None).wait()


@pytest.fixture
def router(tmp_path: Path) -> Iterator[Router]:
    """A router for models with two model servers."""
    running = Router(tmp_path)
    yield running
    running.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NotingServer]:
    """One model server."""
    running = NotingServer(tmp_path / "0.sock")
    yield running
    running.stop()


def test_bytes_metadata_and_deadline_are_passed_on(router: Router, server: NotingServer) -> None:
    """The message and the answer unread, the client's metadata, and what is left of its time."""
    router.lead("a", to=(server.socket,))
    message = request_for("a") + b"\x12\x02\xff\xff"  # an entry of inputs that is not one
    metadata = (("x-request-id", "id-1"), ("traceparent", "00-1-2-01"), ("own-bin", b"\x00\xff"))

    answer, call = router.call.with_call(message, timeout=20, metadata=metadata)

    assert (answer, server.messages) == (ANSWER, [message])
    assert metadata[0] in server.metadata.items()
    assert {name: server.metadata[name] for name, _ in metadata} == dict(metadata)
    assert 0 < server.seconds_left < 25  # on the wire it is rounded up
    trailers = dict(call.trailing_metadata())
    assert (trailers["x-own"], trailers["x-own-bin"]) == ("told", b"\x00\x01")


def test_a_refusal_comes_back_as_it_is(router: Router, server: NotingServer) -> None:
    """Code, text and trailing metadata."""
    router.lead("refused", to=(server.socket,))

    with pytest.raises(grpc.RpcError) as caught:
        router.call(request_for("refused"), timeout=SECONDS)

    error: Any = caught.value
    assert (error.code(), error.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "as it is: ä")
    assert dict(error.trailing_metadata())["x-own"] == "told"


def test_a_client_that_cancels_ends_the_call_behind(router: Router, server: NotingServer) -> None:
    """The model server learns of it, and an unload that waits for the call goes on."""
    router.lead("held", to=(server.socket,))
    call = router.call.future(request_for("held"), timeout=SECONDS)
    assert server.begun.wait(SECONDS)
    router.forget("held")
    assert not router.idle("held", 0.2)

    call.cancel()

    assert server.ended.wait(SECONDS)
    assert router.idle("held", SECONDS)


def test_a_call_goes_to_another_model_server_if_the_first_takes_no_connections(
    router: Router, server: NotingServer, tmp_path: Path
) -> None:
    """Nothing was sent there; if no one does, the client may try again."""
    router.lead("a", to=(tmp_path / "nobody.sock", server.socket))
    for _ in range(4):
        assert router.call(request_for("a"), timeout=SECONDS) == ANSWER

    router.lead("a", to=(tmp_path / "nobody.sock",))

    assert refusal(lambda: router.call(request_for("a"), timeout=SECONDS)) == (
        "UNAVAILABLE",
        "no model server is ready: starting, or being restarted",
    )


def test_the_least_busy_model_server_gets_the_call(
    router: Router, server: NotingServer, tmp_path: Path
) -> None:
    """All of them, while the first one is held."""
    other = NotingServer(tmp_path / "1.sock")
    router.lead("held", "free", to=(server.socket, other.socket))
    held = router.call.future(request_for("held"), timeout=SECONDS)
    wait_until(lambda: server.begun.is_set() or other.begun.is_set(), SECONDS, "a call is held")
    busy, idle = (server, other) if server.begun.is_set() else (other, server)

    for _ in range(5):
        router.call(request_for("free"), timeout=SECONDS)

    assert (len(busy.messages), len(idle.messages)) == (1, 5)
    busy.goes_on.set()
    assert held.result() == ANSWER
    other.stop()


def test_nothing_is_left_of_a_model_that_has_gone(router: Router, server: NotingServer) -> None:
    """Its channel is closed soon after."""
    before = router.descriptors()
    router.lead("a", to=(server.socket,))
    assert router.call(request_for("a"), timeout=SECONDS) == ANSWER
    assert router.descriptors() > before

    router.forget("a")

    wait_until(lambda: router.descriptors() <= before, SECONDS, "its channel is closed")


def test_a_call_for_a_model_that_is_not_loaded_gets_the_supervisors_reason(router: Router) -> None:
    """What it says when it is asked to load the model."""
    code, text = refusal(lambda: router.call(request_for("a"), timeout=SECONDS))

    assert (code, text) == ("UNAVAILABLE", "there is no supervisor here")
