"""The embedded server's end: what is in flight at a signal is answered, and nothing else keeps it."""

import json
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from support.embedded_client import ask
from support.gates import Gate, gate
from support.grpc_calls import PREDICT
from support.model_fixtures import EmbeddedServer, Serve, StartServer
from support.predict_messages import request_bytes, response_arrays
from support.waiting import wait_until
from support.warmup_files import recorded, warm_up_with
from tfs_proxy.wire.protos.predict import model_spec

pytestmark = pytest.mark.tensorflow

ENDS_WITHIN_SECONDS = 60


def over_rest(server: EmbeddedServer, mark: str) -> tuple[int, Any]:
    """Ask the model `gate` over REST: the status and what it answers."""
    status, body, _ = ask(server, "/v1/models/gate:predict", {"instances": [mark]})
    return status, json.loads(body)


def wait_until_it_refuses(server: EmbeddedServer) -> None:
    server.wait_until(lambda: not server.state("any"), "it refuses requests")


def begin(channel: grpc.Channel, mark: str) -> Any:
    """Ask the model `gate` over gRPC, and wait for nothing."""
    message = request_bytes(model_spec("gate"), {"mark": np.array([mark.encode()], object)})
    return channel.unary_unary(PREDICT).future(message, timeout=60)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_requests_in_flight_finish(
    tmp_path: Path, serve: Serve, number: signal.Signals
) -> None:
    """Those that are running, over REST and over gRPC, are answered, then the server exits with 0."""
    server = serve("gate")
    with (
        ThreadPoolExecutor(1) as pool,
        grpc.insecure_channel(server.grpc) as channel,
        gate(tmp_path / "gate") as held,
    ):
        running = pool.submit(over_rest, server, held.mark("rest"))
        called = begin(channel, held.mark("grpc"))
        held.wait_for(2)
        server.process.send_signal(number)
        wait_until_it_refuses(server)
        held.open()
        assert running.result() == (200, {"predictions": [len(held.mark("rest"))]})
        assert response_arrays(called.result())["y"].tolist() == [len(held.mark("grpc"))]
    assert server.wait(ENDS_WITHIN_SECONDS) == 0


def test_two_signals_at_once_are_one(tmp_path: Path, serve: Serve) -> None:
    """`timeout`, and a shell that passes Ctrl-C on, send one to the process and one to its group."""
    server = serve("gate")
    with grpc.insecure_channel(server.grpc) as channel, gate(tmp_path / "gate") as held:
        called = begin(channel, held.mark())
        held.wait_for()
        for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
            server.process.send_signal(number)
        wait_until_it_refuses(server)
        held.open()
        assert response_arrays(called.result())["y"].tolist() == [len(held.mark())]
    assert server.wait(ENDS_WITHIN_SECONDS) == 0


def end_by_two_signals(server: EmbeddedServer) -> None:
    """SIGTERM does not end it; with SIGINT it does, with 0."""
    server.process.terminate()
    wait_until_it_refuses(server)
    assert server.process.poll() is None

    def has_ended() -> bool:
        for number in (signal.SIGTERM, signal.SIGINT):
            server.process.send_signal(number)
        return server.process.poll() is not None

    # Signals that come within a moment count as one, so they are sent until one counts.
    wait_until(has_ended, 30, "a second signal ends the server", details=lambda: server.log, pause=0.5)
    assert server.wait() == 0


def test_a_second_signal_waits_for_nobody(serve: Serve) -> None:
    """Callers that have begun a request on either door and send no more do not keep the server then."""
    server = serve("half_plus_two")
    released = threading.Event()

    def never() -> Iterator[bytes]:
        released.wait(60)
        yield b""

    head = b"POST /v1/models/half_plus_two:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n"
    whole = request_bytes(model_spec("half_plus_two"), {"x": np.ones(1, np.float32)})
    with (
        grpc.insecure_channel(server.grpc) as channel,
        socket.create_connection(("127.0.0.1", server.rest_port)) as connection,
    ):
        connection.sendall(head + b"Expect: 100-continue\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 100")
        begun = channel.stream_unary(PREDICT).future(never(), timeout=60)
        # Behind the call that has begun, on the same connection.
        channel.unary_unary(PREDICT)(whole, timeout=60)
        end_by_two_signals(server)
        assert begun.exception() is not None
        released.set()


def test_a_second_signal_waits_for_no_computation(tmp_path: Path, serve: Serve) -> None:
    server = serve("gate")
    with grpc.insecure_channel(server.grpc) as channel, gate(tmp_path / "gate") as held:
        body = json.dumps({"instances": [held.mark("rest")]}).encode()
        head = f"POST /v1/models/gate:predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.rest_port)) as connection:
            connection.sendall(head.encode() + body)
            called = begin(channel, held.mark("grpc"))
            held.wait_for(2)
            end_by_two_signals(server)
            assert called.exception() is not None


def test_a_model_that_is_loading_keeps_no_server(
    saved_models: Path, tmp_path: Path, model_server: StartServer
) -> None:
    version = tmp_path / "gate" / "1"
    shutil.copytree(saved_models / "gate" / "1", version)
    with gate(tmp_path / "held") as held:
        warm_up_with(version, recorded("mark", [held.mark().encode()]))
        server = model_server(f"--model_base_path={version.parent}", "--model_name=gate")
        held.wait_for()
        server.process.terminate()
        assert server.wait(ENDS_WITHIN_SECONDS) == 0


def timed_out_over_rest(server: EmbeddedServer, held: Gate) -> None:
    """A request that has its 504 while TensorFlow still computes; one that had no thread in time does not count."""
    mark = held.mark()
    server.wait_until(
        lambda: over_rest(server, mark)[0] == 504 and Path(mark).exists(), "a request that runs has its 504"
    )


def cancelled_over_grpc(server: EmbeddedServer, held: Gate) -> None:
    """A call that its caller has given up while TensorFlow still computes."""
    with grpc.insecure_channel(server.grpc) as channel:
        called = begin(channel, held.mark())
        held.wait_for()
        called.cancel()


@pytest.mark.parametrize("give_up", [timed_out_over_rest, cancelled_over_grpc])
def test_what_nobody_waits_for_keeps_no_server(
    tmp_path: Path, serve: Serve, give_up: Callable[[EmbeddedServer, Gate], None]
) -> None:
    """A computation whose request has its answer, or was given up, ends with the process."""
    server = serve("gate", "--rest_api_timeout_in_ms=100")
    with gate(tmp_path / "gate") as held:
        give_up(server, held)
        server.process.terminate()
        assert server.wait(ENDS_WITHIN_SECONDS) == 0
