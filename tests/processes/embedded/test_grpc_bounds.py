"""What one gRPC call, and any bytes on its port, may do to the embedded server, which is grpcio's there."""

import gzip
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from support.grpc_calls import PREDICT, predict, refusal
from support.model_fixtures import EmbeddedServer
from support.predict_messages import request_bytes, response_arrays
from support.waiting import wait_until
from tfs_proxy.wire.protos.predict import model_spec

pytestmark = pytest.mark.tensorflow

MEGABYTE = 1 << 20
LARGE = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@pytest.fixture
def channel(embedded_server: EmbeddedServer) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(embedded_server.grpc, LARGE) as opened:
        yield opened


def predicted(channel: grpc.Channel, **options: Any) -> list[float]:
    message = request_bytes(model_spec("half_plus_two"), {"x": np.ones(300, np.float32)})
    answer = channel.unary_unary(PREDICT)(message, timeout=10, **options)
    return list(response_arrays(answer)["y"][:1])


def test_messages_in_gzip_are_read(channel: grpc.Channel) -> None:
    assert predicted(channel, compression=grpc.Compression.Gzip) == [2.5]
    code, text = refusal(lambda: predicted(channel, compression=grpc.Compression.Deflate))
    assert (code, "deflate" in text) == ("UNIMPLEMENTED", True)


def test_a_message_that_unpacks_to_too_much_is_refused(channel: grpc.Channel) -> None:
    call = channel.unary_unary(PREDICT)
    code, text = refusal(lambda: call(bytes(101 * MEGABYTE), timeout=60, compression=grpc.Compression.Gzip))
    assert (code, "unpacks to over 104857600 bytes" in text) == ("INVALID_ARGUMENT", True)
    assert refusal(lambda: call(gzip.compress(bytes(9))[:-3], timeout=60))[0] == "INVALID_ARGUMENT"


def test_headers_have_a_limit(channel: grpc.Channel) -> None:
    assert predicted(channel, metadata=[("trace-bin", bytes(range(256))), ("long", "y" * 50_000)]) == [2.5]
    code, _ = refusal(lambda: predicted(channel, metadata=[("long", "y" * 70_000)]))
    assert code == "RESOURCE_EXHAUSTED"
    assert [predicted(channel) for _ in range(1100)] == [[2.5]] * 1100  # 1,024 may be open, so all have ended


def test_a_text_longer_than_clients_take_is_cut(channel: grpc.Channel) -> None:
    code, text = refusal(lambda: predict(channel, [1.0], "caf\u00e9 " * 10_000))
    assert code == "NOT_FOUND"
    assert text.startswith("Servable not found for request: Latest(caf\u00e9 caf\u00e9 ")
    assert 2_000 < len(text) < 8_000


def test_calls_at_a_time_have_a_limit(embedded_server: EmbeddedServer, channel: grpc.Channel) -> None:
    with grpc.insecure_channel(embedded_server.grpc, [("grpc.use_local_subchannel_pool", 1)]) as other:
        silent = threading.Event()
        begun = [other.stream_unary(PREDICT).future(messages_after(silent)) for _ in range(1024)]
        wait_until(lambda: refused_for_number(channel), 30, "one more call is refused")
        for call in begun:
            call.cancel()
        silent.set()
    wait_until(lambda: not refused_for_number(channel), 30, "calls are taken again")


def messages_after(event: threading.Event) -> Iterator[bytes]:
    """No message, and not the end of them before the event."""
    event.wait(60)
    yield from ()


def refused_for_number(channel: grpc.Channel) -> bool:
    try:
        predicted(channel)
    except grpc.RpcError as error:
        return (error.code().name, error.details()) == (
            "RESOURCE_EXHAUSTED",
            "Concurrent RPC limit exceeded!",
        )
    return False


def test_reflection_tells_the_services_and_their_messages(embedded_server: EmbeddedServer) -> None:
    with grpc.insecure_channel(embedded_server.grpc) as channel:
        told = ProtoReflectionDescriptorDatabase(channel)
        assert set(told.get_services()) == {
            "grpc.reflection.v1alpha.ServerReflection",
            "tensorflow.serving.ModelService",
            "tensorflow.serving.PredictionService",
        }
        for symbol in (
            "tensorflow.serving.PredictionService",
            "tensorflow.TensorProto",
            health_pb2.DESCRIPTOR.package + ".Health",
        ):
            assert told.FindFileContainingSymbol(symbol)
