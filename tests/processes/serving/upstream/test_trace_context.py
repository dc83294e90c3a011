"""What a model server is sent of the present span: headers of REST, metadata of gRPC, and nothing without one."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest

from support.grpc_servers import started
from tfs_proxy.observe.traces import OUTGOING, with_trace
from tfs_proxy.serving.upstream.grpc_channels import PREDICT, GrpcCalls
from tfs_proxy.values.deployment import Instance

HEADERS: Mapping[str, str] = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01", "tracestate": "a=b"}


@pytest.fixture
def metadata(tmp_path: Path) -> Iterator[tuple[Instance, list[dict[str, Any]]]]:
    """A gRPC server on a unix socket, and the metadata of each call that it gets."""
    seen: list[dict[str, Any]] = []

    def predict(_message: bytes, context: grpc.ServicerContext) -> bytes:
        seen.append(dict(context.invocation_metadata()))
        return b""

    server = started(f"unix:{tmp_path}/s", PREDICT, predict)
    yield Instance(0, 0, 0, f"{tmp_path}/s"), seen
    server.stop(None).wait()


def test_a_call_over_grpc_carries_the_trace_as_metadata(
    metadata: tuple[Instance, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As OpenTelemetry's instrumentation of a server reads it; off there is none."""
    instance, seen = metadata
    calls = GrpcCalls(20)
    calls.predict(instance, [b""])
    monkeypatch.setattr(OUTGOING, "headers", lambda: HEADERS)
    calls.predict(instance, [b""])
    calls.close()

    without, carried = seen
    assert not HEADERS.keys() & without.keys()
    assert {name: carried.get(name) for name in HEADERS} == HEADERS


def test_headers_carry_the_trace_unless_the_caller_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script's own instrumentation may have written it, in any case."""
    assert with_trace({"A": "b"}) == {"A": "b"}
    monkeypatch.setattr(OUTGOING, "headers", lambda: HEADERS)

    assert with_trace({"A": "b"}) == {"A": "b", **HEADERS}
    assert with_trace({"Traceparent": "own"}) == {"Traceparent": "own"}
