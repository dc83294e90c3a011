"""What one request, and many at once, may cost the embedded server: memory, heads, versions, messages."""

import gzip
import json
import re
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from support.embedded_client import ask, call, predicted
from support.grpc_calls import refusal
from support.model_fixtures import EmbeddedServer
from tfs_proxy.wire import protos
from tfs_proxy.wire.data_types import DataType
from tfs_proxy.wire.protobuf_writer import field

pytestmark = [pytest.mark.tensorflow, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

MODEL = "/v1/models/half_plus_two"
GROWTH_MB = 1000
"""Of what one request of 100 MB may cost; what it really costs is half of it."""
MILLION = 1_000_000


def peak_mb(server: EmbeddedServer, work: Callable[[], Any]) -> tuple[Any, int]:
    """What ``work`` returns, and by how much the server's memory grew meanwhile."""
    folder = Path(f"/proc/{server.process.pid}")
    (folder / "clear_refs").write_text("5")

    def held(name: str) -> int:
        return int(re.findall(rf"{name}:\s+(\d+)", (folder / "status").read_text())[0]) // 1024

    idle = held("VmRSS")
    result = work()
    return result, held("VmHWM") - idle


def posted(server: EmbeddedServer, body: bytes, **headers: str) -> tuple[int, bytes]:
    status, answer, _ = ask(server, f"{MODEL}:predict", body, headers=headers)
    return status, answer


def refused(server: EmbeddedServer, message: bytes, method: str = "Predict") -> tuple[str, str]:
    return refusal(lambda: call(server, method, message))


def declared(data_type: DataType, size: int) -> bytes:
    """A Predict whose tensor declares a size and holds one value."""
    request = protos.PredictRequest()
    request.model_spec.name = "half_plus_two"
    tensor = request.inputs["x"]
    tensor.dtype = data_type  # type: ignore[assignment]  # the same numbers
    tensor.tensor_shape.dim.add().size = size
    (tensor.string_val.append(b"") if data_type == DataType.DT_STRING else tensor.float_val.append(1.0))
    return bytes(request.SerializeToString())


@pytest.mark.parametrize(
    ("data_type", "size", "shown"),
    [
        (DataType.DT_FLOAT, 500 * MILLION, "DT_FLOAT [500000000] of 2,000,000,000 bytes"),
        (DataType.DT_STRING, 500 * MILLION, "DT_STRING [500000000] of 32,000,000,000 bytes"),
        (DataType.DT_FLOAT, 10**18, "DT_FLOAT [1000000000000000000] of 4,000,000,000,000,000,000 bytes"),
    ],
)
def test_a_declared_shape_is_refused_before_it_is_filled(
    embedded_server: EmbeddedServer, data_type: DataType, size: int, shown: str
) -> None:
    (code, text), grown = peak_mb(
        embedded_server, lambda: refused(embedded_server, declared(data_type, size))
    )
    assert code == "INVALID_ARGUMENT"
    assert text.startswith(f'The tensor "x", declared as {shown}, needs ')
    assert text.endswith(" MB of memory, and 400 MB are there: send it in parts.")
    assert grown < GROWTH_MB // 10


def test_a_tensor_of_no_size_is_refused(embedded_server: EmbeddedServer) -> None:
    said = refused(embedded_server, declared(DataType.DT_FLOAT, -1))
    assert said == ("INVALID_ARGUMENT", "tensor parsing error: x")


EMPTY = b"\x0a\x00"
TEN_MILLION = 10 * MILLION
DENSE: dict[str, tuple[str, bytes]] = {
    "examples": ("Classify", field(2, field(1, EMPTY * TEN_MILLION))),
    "features": ("Regress", field(2, field(1, field(1, field(1, EMPTY * TEN_MILLION))))),
    "tasks": ("MultiInference", EMPTY * TEN_MILLION),
    "inputs": ("Predict", b"\x12\x00" * TEN_MILLION),
    "dimensions": ("Predict", field(2, field(1, b"x") + field(2, field(2, b"\x12\x00" * TEN_MILLION)))),
    "fields": ("GetModelMetadata", b"\x12\x00" * 2 * TEN_MILLION),
}
"""A method, and a message of 20 MB that it would read as many small ones."""


@pytest.mark.parametrize("name", DENSE)
def test_a_message_of_many_small_ones_is_refused_before_it_is_parsed(
    embedded_server: EmbeddedServer, name: str
) -> None:
    method, message = DENSE[name]
    said, grown = peak_mb(embedded_server, lambda: refused(embedded_server, message, method))
    assert said[0] == "INVALID_ARGUMENT"
    assert said[1].endswith(" MB of memory, and 400 MB are there: send it in parts.")
    assert grown < GROWTH_MB // 5


BODIES: dict[str, tuple[bytes, bytes, int]] = {
    "numbers": (b'{"instances": [0', b",0", 50),
    "lists": (b'{"a": [[]', b",[]", 33),
    "objects": (b'{"instances": [{}', b",{}", 33),
    "rows": (b'{"instances": [{"x":0}', b',{"x":0}', 12),
    "strings": (b'{"instances": [""', b',""', 33),
    "brackets": (b"[", b"[", 100),
}
"""What a body begins with, what follows, and how many millions of that."""


def large_body(name: str) -> bytes:
    head, unit, millions = BODIES[name]
    return head + unit * (millions * MILLION) + b"]}"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_becomes_too_much_is_refused(
    embedded_server: EmbeddedServer, name: str, packed: bool
) -> None:
    """413, in the form of all errors, for about five times the memory of the body."""
    body = gzip.compress(large_body(name), 1) if packed else large_body(name)
    headers = {"Content-Encoding": "gzip"} if packed else {}
    (status, answer), grown = peak_mb(embedded_server, lambda: posted(embedded_server, body, **headers))
    assert (status, grown < GROWTH_MB) == (413, True), grown
    assert "and 400 MB are there" in json.loads(answer)["error"]


def test_a_stalled_upload_holds_only_what_has_come(embedded_server: EmbeddedServer) -> None:
    """One that promises 400 MB, and sends one, keeps a request of 20 MB waiting for a moment at most."""
    good = b'{"instances": [0.5' + b",0.1234567" * (2 * MILLION) + b"]}"
    head = b"POST " + MODEL.encode() + b":predict HTTP/1.1\r\nHost: x\r\nContent-Length: 400000000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", embedded_server.rest_port), timeout=60) as connection:
        connection.sendall(head + b" " * MILLION)
        assert posted(embedded_server, good)[0] == 200


def test_connections_leave_descriptors_for_those_that_are_open(tmp_path: Path, saved_models: Path) -> None:
    """Half of the descriptors are for them: beyond that a connection gets a 503, and ends."""
    limited = EmbeddedServer(
        tmp_path,
        ["--model_name=half_plus_two", f"--model_base_path={saved_models / 'half_plus_two'}"],
        launcher=["prlimit", "--nofile=256:256"],
    )
    with closing(limited) as server, ExitStack() as held:
        server.wait_available("half_plus_two")
        connections = [
            held.enter_context(socket.create_connection(("127.0.0.1", server.rest_port), timeout=30))
            for _ in range(150)
        ]
        assert connections[-1].recv(65536).startswith(b"HTTP/1.1 503")
        connections[0].sendall(GET + b"\r\n")
        assert connections[0].recv(65536).startswith(b"HTTP/1.1 200")
        for connection in connections:
            connection.close()
        assert posted(server, b'{"instances": [1.0]}')[0] == 200


def answer_to(server: EmbeddedServer, *parts: bytes) -> bytes:
    """All that comes back for some bytes, of which the server need not take the last ones."""
    with socket.create_connection(("127.0.0.1", server.rest_port), timeout=60) as connection:
        for part in parts:
            connection.sendall(part)
        return b"".join(iter(lambda: connection.recv(65536), b""))


GET = b"GET " + MODEL.encode() + b" HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"POST " + MODEL.encode() + b":predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
MUCH = b"a" * 100_000


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (GET + b"X: " + MUCH + b"\r\n\r\n", b"431"),
        (GET + MUCH + b": x\r\n\r\n", b"431"),
        (GET + b"X: aaaaaaaa\r\n" * 10_000 + b"\r\n", b"431"),
        (GET + b"X: " + MUCH * 30, b"431"),
        (b"GET /" + MUCH, b"414"),
        (b"GET /" + MUCH * 100 + b" HTTP/1.1\r\n\r\n", b"414"),
        (CHUNKED + b"1;" + MUCH * 10, b"431"),
        (CHUNKED + b"0\r\nX: " + MUCH * 10, b"431"),
    ],
    ids=["header", "name", "headers", "endless", "endless target", "target", "chunk", "trailer"],
)
def test_a_head_is_bounded(embedded_server: EmbeddedServer, head: bytes, status: bytes) -> None:
    """64 KB, whatever it is of; the answer comes, then the connection ends, and the server goes on."""
    answer, grown = peak_mb(embedded_server, lambda: answer_to(embedded_server, head))
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert grown < GROWTH_MB // 10
    assert predicted(embedded_server, "half_plus_two", [1.0]) == [2.5]


def test_a_head_of_half_the_limit_is_read(embedded_server: EmbeddedServer) -> None:
    head = GET + b"X: " + b"a" * 60_000 + b"\r\nConnection: close\r\n\r\n"
    assert answer_to(embedded_server, head).startswith(b"HTTP/1.1 200")


def test_a_huge_content_length_is_refused_at_once(embedded_server: EmbeddedServer) -> None:
    head = CHUNKED.replace(b"Transfer-Encoding: chunked", b"Content-Length: 9000000000000000000")
    with socket.create_connection(("127.0.0.1", embedded_server.rest_port), timeout=60) as connection:
        connection.sendall(head + b"{")
        assert connection.recv(65536).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("digits", [19, 20, 5000])
def test_a_version_beyond_all_versions_is_a_bad_request(embedded_server: EmbeddedServer, digits: int) -> None:
    status, answer, _ = ask(embedded_server, f"{MODEL}/versions/{'9' * digits}")
    assert (status, b"Failed to convert version" in answer) == (400, True)


@pytest.mark.parametrize("method", ["Predict", "Classify", "Regress", "MultiInference", "GetModelMetadata"])
def test_what_is_not_a_message_is_a_bad_request(embedded_server: EmbeddedServer, method: str) -> None:
    said = refused(embedded_server, b"\xff\xff", method)
    assert said == ("INVALID_ARGUMENT", f"The request is not a message of {method}")
