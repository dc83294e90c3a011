"""Arrays over gRPC, against the embedded model server: every type, every error, both doors."""

import json
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.model_fixtures import EmbeddedServer
from tfs_proxy.serving.upstream.binary import BinaryUpstream
from tfs_proxy.serving.upstream.interface import TensorAnswer
from tfs_proxy.serving.upstream.rest import RestUpstream
from tfs_proxy.values.batch import Batch
from tfs_proxy.values.deployment import Instance
from tfs_proxy.values.errors import BadInput
from tfs_proxy.values.signature import Target

pytestmark = pytest.mark.tensorflow

HALF = Target("half_plus_two")


def instance_of(server: EmbeddedServer) -> Instance:
    """The server as an instance."""
    return Instance(0, server.rest_port, server.grpc_port, server.grpc_socket)


@pytest.fixture
def upstream(embedded_server: EmbeddedServer) -> Iterator[BinaryUpstream]:
    """Both doors of the embedded server."""
    pool = BinaryUpstream([instance_of(embedded_server)], 20)
    yield pool
    pool.close()


def batch(**inputs: Any) -> Batch:
    """Records of arrays."""
    return Batch(inputs, len(next(iter(inputs.values()))))


def bytes_array(*values: bytes) -> np.ndarray[Any, Any]:
    """Strings as they travel through a Batch."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


CASES: dict[str, tuple[Target, Batch]] = {
    "one": (HALF, batch(x=np.array([1, 2.2, 1e7, -1 / 3, 1e-9], np.float32))),
    "matrix": (HALF, batch(x=np.linspace(-3, 3, 200, dtype=np.float32).reshape(50, 2, 2))),
    "special": (Target("special"), batch(x=np.array([0, -0.0, 1, -1], np.float32))),
    "several": (
        Target("multi_io"),
        batch(a=np.array([[1, 2, 3], [9, 9, 9]], np.float32), b=np.array([1, -5])),
    ),
    "bytes": (Target("bytes"), batch(image_bytes=bytes_array(b"\xff\xd8", b""))),
    "text": (Target("bytes", signature="text"), batch(text=bytes_array(b'a"\n\x01', "é".encode()))),
    "doubles": (Target("echo", signature="float64"), batch(x=np.array([1 / 3, 1e300, 5e-324, 123456789.0]))),
    "booleans": (Target("echo", signature="bool"), batch(x=np.array([[True], [False]]))),
    "unsigned": (Target("echo", signature="uint64"), batch(x=np.array([2**64 - 1], np.uint64))),
    "not by row": (Target("mixed_batch"), batch(x=np.array([1, 2], np.float32))),
    "shape": (Target("matrix"), batch(m=np.zeros((1, 3, 2), np.float32))),
    "no model": (Target("nope"), batch(x=np.zeros(1, np.float32))),
    "no version": (Target("half_plus_two", version=7), batch(x=np.zeros(1, np.float32))),
    "no label": (Target("half_plus_two", label="canary"), batch(x=np.zeros(1, np.float32))),
}


def sorted_object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object with its names in order."""
    return dict(sorted(members))


@pytest.mark.parametrize("name", CASES)
def test_json_is_that_of_the_rest_side(
    embedded_server: EmbeddedServer, upstream: BinaryUpstream, name: str
) -> None:
    """Status and JSON, errors included, are what REST answers to the same records, to the byte.

    The order of several outputs is that of a hash map there.
    """
    target, records = CASES[name]
    rest = RestUpstream([instance_of(embedded_server)], 20)
    try:
        want = rest.predict(target, records)
    finally:
        rest.close()
    answer = upstream.predict(target, records)
    assert answer.status == want.status
    assert answer.headers["Content-Type"] == "application/json"
    if isinstance(answer, TensorAnswer) and len(answer.tensors) > 1:
        assert repr(json.loads(answer.body)) == repr(json.loads(want.body, object_pairs_hook=sorted_object))
    else:
        assert answer.body == want.body


def test_no_rows(upstream: BinaryUpstream) -> None:
    """An empty batch has outputs, and none in row form."""
    answer = upstream.predict(HALF, batch(x=np.zeros(0, np.float32)))
    assert answer.outputs(upstream.signature(HALF))["y"].shape == (0,)
    assert (answer.status, json.loads(answer.body)) == (200, {"predictions": []})


def test_inputs_that_do_not_fit(upstream: BinaryUpstream) -> None:
    """Wrong types and missing inputs are answers of the model server; no tensor at all is BadInput."""
    wrong = upstream.predict(HALF, batch(x=np.zeros(1, np.int64)))
    assert (wrong.ok, wrong.status) == (False, 400)
    assert "float" in json.loads(wrong.body)["error"]
    missing = upstream.predict(Target("multi_io"), batch(a=np.zeros((1, 3), np.float32)))
    assert missing.status == 400
    with pytest.raises(BadInput, match='Input "x" is not a tensor'):
        upstream.predict(HALF, batch(x=np.array(["2020-01-01"], "datetime64[D]")))
    with pytest.raises(BadInput, match='no signature "nope"'):
        upstream.predict(Target("half_plus_two", signature="nope"), batch(x=np.zeros(1, np.float32)))


def test_memory_order_does_not_matter(upstream: BinaryUpstream) -> None:
    """Transposed, strided and big-endian arrays mean the same numbers."""
    target = Target("echo", signature="float32")
    plain = np.arange(12, dtype=np.float32).reshape(3, 4)
    for array in (plain.T, plain[:, ::2], plain.astype(">f4"), np.asfortranarray(plain)):
        outputs = upstream.predict(target, batch(x=array)).outputs(upstream.signature(target))
        np.testing.assert_array_equal(outputs["y"], array)


def test_a_busy_server_is_not_a_dead_one(embedded_server: EmbeddedServer) -> None:
    """The first call waits for its connection, however long the server takes to take it."""
    pool, x = BinaryUpstream([instance_of(embedded_server)], 60), batch(x=np.array([1], np.float32))
    pool.signature(HALF)
    with ThreadPoolExecutor(1) as thread:
        embedded_server.process.send_signal(signal.SIGSTOP)
        try:
            call = thread.submit(pool.predict, HALF, x)
            assert wait([call], 0.5).not_done
        finally:
            embedded_server.process.send_signal(signal.SIGCONT)
        assert call.result().ok
    pool.close()


def test_large_arrays_are_copied_once_each_way(upstream: BinaryUpstream) -> None:
    """100 MB out and in: the message, the answer, and one more of either where grpc or alignment need it."""
    target = Target("echo", signature="float32")
    upstream.predict(target, batch(x=np.zeros((1, 4), np.float32)))
    array = np.ones((25, 1_000_000), np.float32)
    tracemalloc.start()
    try:
        outputs = upstream.predict(target, batch(x=array)).outputs(upstream.signature(target))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(outputs["y"], array)
    assert peak < 3.1 * array.nbytes


BESIDE_TENSORFLOW = """
import sys
sys.path[:0] = {path!r}
{before}
from tfs_proxy.wire.protos.predict import model_spec
from support.predict_messages import request_bytes
from tfs_proxy.wire.protos.predict import read_response
import numpy as np
{after}
ours = request_bytes(model_spec("m", 3), {{"x": np.array([1.5, 2.5], np.float32)}})
theirs = predict_pb2.PredictRequest.FromString(ours)
assert theirs.model_spec.version.value == 3
assert tf.make_ndarray(theirs.inputs["x"]).tolist() == [1.5, 2.5]
answer = predict_pb2.PredictResponse()
answer.outputs["y"].CopyFrom(tf.make_tensor_proto(np.array([[1.0], [2.0]], np.float16)))
answer.outputs["s"].CopyFrom(tf.make_tensor_proto([b"a", b"b"]))
back = read_response(answer.SerializeToString()).outputs
assert back["y"].tolist() == [[1.0], [2.0]] and back["s"].tolist() == [b"a", b"b"]
print("both")
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("ours_first", [True, False])
def test_beside_tensorflow_serving_apis(ours_first: bool) -> None:
    """One process imports tensorflow and tensorflow_serving.apis before ours, or after; both work."""
    theirs = "import tensorflow as tf\nfrom tensorflow_serving.apis import predict_pb2"
    code = BESIDE_TENSORFLOW.format(
        path=[str(Path(__file__).parents[3])],
        before="" if ours_first else theirs,
        after=theirs if ours_first else "",
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "both", done.stderr[-2000:]
