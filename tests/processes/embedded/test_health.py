"""grpc.health.v1 of the embedded server, by the flag that TF Serving has for it: checks and watches."""

import queue
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from msgspec.structs import replace

from support.gates import gate
from support.grpc_calls import ones, predict
from support.model_fixtures import EmbeddedServer, Serve, StartServer, serving_one
from support.warmup_files import recorded, warm_up_with
from tfs_proxy.run.model_states import answers_grpc
from tfs_proxy.values.deployment import Instance

pytestmark = pytest.mark.tensorflow

FLAG = "--enable_grpc_healthcheck_service"
Status = health_pb2.HealthCheckResponse.ServingStatus


class Watch:
    """An open watch of one name: what it tells, as it comes."""

    def __init__(self, channel: grpc.Channel, name: str = "") -> None:
        self._told: queue.Queue[str] = queue.Queue()
        request = health_pb2.HealthCheckRequest(service=name).SerializeToString()
        self.call = channel.unary_stream("/grpc.health.v1.Health/Watch")(request, wait_for_ready=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for message in self.call:
                self._told.put(Status.Name(health_pb2.HealthCheckResponse.FromString(message).status))
            self._told.put("the end")
        except grpc.RpcError as error:
            self._told.put(f"{error.code().name}: {error.details()}")

    def next(self, seconds: float = 120) -> str:
        return self._told.get(timeout=seconds)

    @property
    def silent(self) -> bool:
        """Whether it is open and has nothing to tell for a while."""
        try:
            self._told.get(timeout=0.3)
        except queue.Empty:
            return bool(self.call.is_active())
        return False


@pytest.fixture(scope="module")
def server(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """A server with a health service and few threads for calls."""
    folder, model = tmp_path_factory.mktemp("health"), saved_models / "half_plus_two"
    with serving_one(folder, model, FLAG, "--grpc_max_threads=3") as started:
        with grpc.insecure_channel(started.grpc) as channel:
            started.wait_until(lambda: check(channel, "") == "SERVING", "the server is SERVING")
        yield started


def check(channel: grpc.Channel, name: str) -> str:
    request = health_pb2.HealthCheckRequest(service=name).SerializeToString()
    try:
        answer = channel.unary_unary("/grpc.health.v1.Health/Check")(request, timeout=30)
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"
    return str(Status.Name(health_pb2.HealthCheckResponse.FromString(answer).status))


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("", "SERVING"),
        ("PredictionService", "SERVING"),
        ("tensorflow.serving.PredictionService", "SERVING"),
        ("ModelService", "SERVING"),
        ("nobody", "NOT_FOUND: "),
    ],
)
def test_the_server_and_its_services_have_a_health(server: EmbeddedServer, name: str, status: str) -> None:
    with grpc.insecure_channel(server.grpc) as channel:
        assert check(channel, name) == status


def test_watches_hold_no_threads(server: EmbeddedServer) -> None:
    """Far more watches are open than there are threads for calls, and calls are answered."""
    with grpc.insecure_channel(server.grpc) as channel:
        watches = [Watch(channel) for _ in range(40)]
        assert {watch.next() for watch in watches} == {"SERVING"}
        assert predict(channel, ones(1), "m")["y"] == [2.5]
        for watch in watches:
            watch.call.cancel()
        assert check(channel, "") == "SERVING"


def test_a_watch_sees_the_first_models_come(
    saved_models: Path, tmp_path: Path, model_server: StartServer
) -> None:
    """Before they are loaded, here because a recorded request is held, the server is not serving."""
    with gate(tmp_path / "gate") as held:
        folder = tmp_path / "m" / "1"
        shutil.copytree(saved_models / "gate" / "1", folder)
        warm_up_with(folder, recorded("mark", [held.mark().encode()]))
        started = model_server(f"--model_base_path={folder.parent}", "--model_name=m", FLAG)
        held.wait_for()
        with grpc.insecure_channel(started.grpc) as channel:
            watch = Watch(channel)
            assert watch.next() == "NOT_SERVING"
            assert watch.silent
            held.open()
            assert watch.next() == "SERVING"
            started.wait_available("m")


def test_open_watches_do_not_keep_a_server_that_stops(serve: Serve) -> None:
    """At a signal they hear that it no longer serves, and end; the server exits with 0."""
    started = serve("half_plus_two", FLAG)
    with grpc.insecure_channel(started.grpc) as channel:
        watches: list[Any] = [Watch(channel), Watch(channel, "nobody")]
        started.wait_until(lambda: check(channel, "") == "SERVING", "the server is SERVING")
        for watch in watches:
            while watch.next() not in {"SERVING", "SERVICE_UNKNOWN"}:
                pass
        started.process.terminate()
        assert watches[0].next() == "NOT_SERVING"
        assert [watch.next() for watch in watches] == ["the end", "the end"]
        assert started.wait(60) == 0


def test_a_status_call_over_grpc_tells_whether_a_server_is_there(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    """The supervisor asks so if the REST API is busy: the refusal of a call that names no model is enough."""
    instance = Instance(0, server.rest_port, server.grpc_port, server.grpc_socket)

    assert answers_grpc(instance, 10)
    assert not answers_grpc(replace(instance, grpc_socket=str(tmp_path / "nobody.sock")), 10)
