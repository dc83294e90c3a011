"""Calls of Predict over a channel of grpcio, against a server that does what the first word of a request says."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import grpc
import numpy as np
import pytest

from support.grpc_servers import started
from tfs_proxy.serving.upstream import grpc_channels
from tfs_proxy.serving.upstream.grpc_channels import PREDICT, GrpcCalls
from tfs_proxy.serving.upstream.interface import TensorAnswer
from tfs_proxy.values.deployment import Instance
from tfs_proxy.values.errors import (
    AnswerTooLarge,
    NotReached,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from tfs_proxy.wire.grpc_serving import server_options
from tfs_proxy.wire.protos.predict import response_bytes

SECONDS = 20.0
LONG_TEXT = "caf\u00e9 100% " + "x" * 60_000


class Server:
    """grpcio's, at a unix socket: its answer has the length of the request."""

    def __init__(self, path: Path) -> None:
        self.at = Instance(0, 0, 0, str(path))
        self.begun, self.ended, self.meeting = threading.Event(), threading.Event(), threading.Barrier(2)
        self._server = started(f"unix:{path}", PREDICT, self._answer, server_options(-1))

    def _answer(self, message: bytes, context: grpc.ServicerContext) -> bytes:
        match message[:20].split(b" "):
            case [b"refuse", number, *_]:
                (code,) = (one for one in grpc.StatusCode if one.value[0] == int(number))
                context.abort(code, LONG_TEXT)
            case [b"meet", *_]:
                self.meeting.wait(SECONDS)
            case [b"stay", *_]:
                self.begun.set()
                self.ended.wait(SECONDS)
        return response_bytes(b"", {"length": np.array([len(message)])})

    def stop(self) -> None:
        self._server.stop(None)
        self.ended.set()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path / "s")
    yield running
    running.stop()


@pytest.fixture
def calls() -> Iterator[GrpcCalls]:
    made = GrpcCalls(SECONDS)
    yield made
    made.close()


def length(calls: GrpcCalls, server: Server, *pieces: bytes) -> int:
    answer = calls.predict(server.at, pieces)
    assert isinstance(answer, TensorAnswer)
    return int(answer.tensors["length"][0])


def test_large_messages_are_counted_while_they_are_sent(server: Server) -> None:
    """Pieces joined, and grpc's own copy; nothing of small ones, and nothing stays after an error."""
    counted: list[int] = []
    calls = GrpcCalls(SECONDS, counted.append)

    assert length(calls, server, b"a", bytes(99)) == 100
    assert counted == []
    assert length(calls, server, bytes(150_000_000), b"") == 150_000_000
    calls.predict(server.at, [b"refuse 3 ", bytes(3_000_000)])
    assert counted == [300_000_000, -300_000_000, 6_000_018, -6_000_018]
    calls.close()


@pytest.mark.parametrize(("code", "status"), [(3, 400), (5, 404), (8, 429), (14, 503), (13, 500)])
def test_a_refusal_is_an_answer_of_the_server(
    calls: GrpcCalls, server: Server, code: int, status: int
) -> None:
    """With its words, however long: a full queue is no broken connection."""
    answer = calls.predict(server.at, [b"refuse %d " % code])

    assert (answer.ok, answer.status) == (False, status)
    assert "x" * 60_000 in answer.body.decode()
    assert length(calls, server, b"after") == 5


def test_what_is_not_an_answer(
    calls: GrpcCalls, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody there, no answer in time, one that is too large, and a server that ends with a call under way."""
    with pytest.raises(NotReached):
        calls.predict(Instance(1, 0, 0, str(tmp_path / "none")), [b""])
    with pytest.raises(UpstreamTimeout, match=r"0\.1 seconds"):
        calls.predict(server.at, [b"stay "], timeout_seconds=0.1)
    monkeypatch.setattr(grpc_channels, "OPTIONS", [("grpc.max_receive_message_length", 10)])
    with pytest.raises(AnswerTooLarge, match="TFS_PROXY_MAX_ANSWER_MB"):
        GrpcCalls(SECONDS).predict(server.at, [b"a"])
    server.begun.clear()
    with ThreadPoolExecutor(1) as thread:
        staying = thread.submit(calls.predict, server.at, [b"stay "])
        assert server.begun.wait(SECONDS)
        server.stop()
        error = staying.exception()
    assert type(error) is UpstreamUnavailable
    with pytest.raises(NotReached):
        calls.predict(server.at, [b"a"])


def test_a_connection_that_breaks_is_told_from_one_that_never_was(calls: GrpcCalls, tmp_path: Path) -> None:
    """The server may have begun: whoever asks decides, though another one listens by then."""

    def hang_up() -> None:
        while listening.fileno() >= 0:
            # A client may hang up first, and the test end meanwhile.
            with suppress(OSError), listening.accept()[0] as connection:
                connection.sendall(bytes(3) + b"\4" + bytes(5))
                while (read := connection.recv(1 << 16)) and b"/Predict" not in read:
                    pass

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        threading.Thread(target=hang_up, daemon=True).start()
        with pytest.raises(UpstreamUnavailable) as caught:
            calls.predict(Instance(0, 0, 0, str(tmp_path / "s")), [b"a"])
    assert type(caught.value) is UpstreamUnavailable


GREENLETS = """
from gevent import monkey; monkey.patch_all()
import sys
from gevent.pool import Pool
from tfs_proxy.serving.upstream.grpc_channels import GrpcCalls
from tfs_proxy.values.deployment import Instance
import grpc.experimental.gevent; grpc.experimental.gevent.init_gevent()
calls = GrpcCalls(20)
ask = lambda message: int(calls.predict(Instance(0, 0, 0, sys.argv[1]), [message]).tensors["length"][0])
print(Pool(2).map(ask, [b"meet " + bytes(300_000), b"meet "]))
"""


def test_greenlets_let_each_other_go_on(server: Server) -> None:
    """Each of two calls is answered once the server has both: none may hold up the thread that they share."""
    command = [sys.executable, "-c", GREENLETS, server.at.grpc_socket]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS)

    assert done.stdout.strip() == "[300005, 5]"
