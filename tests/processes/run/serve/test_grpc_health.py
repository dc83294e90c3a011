"""Health and reflection of the published gRPC port, by the clients of grpcio's own packages."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from support.archives import stand_in_archive, stand_in_program
from support.gates import gate
from support.ports import free_port
from support.processes import descendants
from support.scraping import scrape
from support.stack import Stack

SECONDS = 30.0
TENSORFLOW_SERVING = {"tensorflow.serving.ModelService", "tensorflow.serving.PredictionService"}
OPEN_INFERENCE = {"inference.GRPCInferenceService"}
TOOLS = {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}


@pytest.fixture
def channel(stand_in: Stack) -> Iterator[grpc.Channel]:
    """A client of the published port."""
    with grpc.insecure_channel(stand_in.grpc) as opened:
        yield opened


def health(channel: grpc.Channel, service: str = "") -> str:
    """What `grpc_health_probe` would print."""
    try:
        answer = HealthStub(channel).Check(HealthCheckRequest(service=service), timeout=SECONDS)
    except grpc.RpcError as error:
        return str(error.code().name)
    return str(HealthCheckResponse.ServingStatus.Name(answer.status))


def statuses(channel: grpc.Channel) -> tuple[list[str], Thread]:
    """What a watch is told, as it comes, and the thread that ends with it."""
    told: list[str] = []
    stream: Any = HealthStub(channel).Watch(HealthCheckRequest())

    def read() -> None:
        with contextlib.suppress(grpc.RpcError):
            told.extend(HealthCheckResponse.ServingStatus.Name(answer.status) for answer in stream)

    thread = Thread(target=read, daemon=True)
    thread.start()
    return told, thread


def command_lines(pid: int) -> list[bytes]:
    """Those of a process's descendants."""
    return [Path(f"/proc/{each}/cmdline").read_bytes() for each in descendants(pid)]


@pytest.mark.parametrize("service", ["", *sorted(TENSORFLOW_SERVING | OPEN_INFERENCE)])
def test_a_probe_learns_that_the_server_serves(channel: grpc.Channel, service: str) -> None:
    """Kubernetes asks for all of it, or for one service."""
    assert health(channel, service) == "SERVING"


def test_other_names_have_no_health(channel: grpc.Channel) -> None:
    """A check is refused, as what is no request, and a watch waits."""
    assert health(channel, "made.up.Service") == "NOT_FOUND"
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/grpc.health.v1.Health/Check")(b"\x0a\xff", timeout=SECONDS)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    stream = HealthStub(channel).Watch(HealthCheckRequest(service="made.up.Service"), timeout=SECONDS)
    assert next(stream).status == HealthCheckResponse.SERVICE_UNKNOWN
    stream.cancel()


def test_reflection_tells_what_is_published(channel: grpc.Channel) -> None:
    """The services, and the schemas of all of them."""
    told = ProtoReflectionDescriptorDatabase(channel)
    assert set(told.get_services()) == TENSORFLOW_SERVING | OPEN_INFERENCE | TOOLS
    for service in told.get_services():
        assert told.FindFileContainingSymbol(service)


def test_both_count_as_probes(stand_in: Stack, channel: grpc.Channel) -> None:
    """And as nothing else."""
    path = "/grpc.health.v1.Health/Check"
    before = scrape(stand_in).total("tfs_proxy_probe_requests_total", path=path)
    assert health(channel) == "SERVING"
    stand_in.wait_until(
        lambda: scrape(stand_in).total("tfs_proxy_probe_requests_total", path=path) == before + 1,
        "the check counts",
    )
    ProtoReflectionDescriptorDatabase(channel).get_services()
    assert not scrape(stand_in).total("tfs_proxy_grpc_requests_total", grpc_status="0")


@pytest.mark.slow
def test_a_watch_sees_the_models_come_and_go(tmp_path: Path) -> None:
    """At the end of the run its stream ends; there is no translator without the Open Inference Protocol."""
    archive, port = stand_in_archive(tmp_path / "model.tar.gz"), free_port()
    with gate(tmp_path / "gate") as held:
        env = {
            "TFS_PROXY_GRPC_PORT": str(port),
            "TFS_PROXY_DOORS": "none",
            "STAND_IN_GATE": held.mark(),
        }
        env["TFS_PROXY_STOP_SECONDS"] = "3"  # nginx waits that long for the stream
        stack = Stack(str(archive), "--model-server", stand_in_program(tmp_path), env=env)
        with contextlib.closing(stack), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stack.wait_until(lambda: health(channel) == "NOT_SERVING", "the control API answers")
            told, thread = statuses(channel)
            stack.wait_until(lambda: told == ["NOT_SERVING"], "the watch is told")
            held.open()
            stack.wait_until(lambda: told == ["NOT_SERVING", "SERVING"], "the models are loaded")
            assert not any(b"translator" in line for line in command_lines(stack.process.pid))
            stack.process.send_signal(signal.SIGTERM)
            thread.join(SECONDS)
            assert not thread.is_alive()
            assert stack.process.wait(SECONDS) == 0
