"""Upstream over both APIs of a model server: arrays go over gRPC, JSON and metadata over REST."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from tfs_proxy.serving.upstream.grpc_channels import Count, GrpcCalls
from tfs_proxy.serving.upstream.interface import CallOptions, ModelAnswer, Records, TensorAnswer
from tfs_proxy.serving.upstream.rest import RestUpstream, model_path
from tfs_proxy.values.batch import BYTES, Batch
from tfs_proxy.values.deployment import Instance
from tfs_proxy.values.errors import BadInput, UpstreamRefused
from tfs_proxy.values.memory import nested_bytes
from tfs_proxy.values.signature import DEFAULT_SIGNATURE, Signature, Target
from tfs_proxy.wire.data_types import DataType
from tfs_proxy.wire.dtypes import has_json
from tfs_proxy.wire.protobuf_writer import Piece, map_entry, message_field
from tfs_proxy.wire.protos.predict import model_spec
from tfs_proxy.wire.protos.tensors import to_bits, to_pieces

SMALL_BYTES = 16_384
"""Largest records that go over REST when JSON is wanted."""

_BFLOAT16 = "DT_BFLOAT16"


class BinaryUpstream(RestUpstream):
    """`RestUpstream` that sends arrays over gRPC; ``count`` counts large messages."""

    def __init__(
        self, instances: Sequence[Instance], timeout_seconds: float, count: Count = lambda _: None
    ) -> None:
        super().__init__(instances, timeout_seconds)
        self._grpc = GrpcCalls(timeout_seconds, count)

    def predict(self, target: Target, records: Records, **options: Unpack[CallOptions]) -> ModelAnswer:
        """Send a `Batch` over gRPC, large arrays from where they are; all else over REST.

        A small one goes over REST if its answer is wanted ``as_json``, and all types of the model have JSON.
        """
        if not isinstance(records, Batch):
            return super().predict(target, records, **options)
        try:
            signature = self.signature(target)
        except UpstreamRefused as refused:
            return ModelAnswer.refused(refused)
        if signature.name != DEFAULT_SIGNATURE:  # the only one that a model server takes without its name
            target = replace(target, signature=signature.name)
        # PERF: rows "tiny array": 5,487 requests/s by pooled REST, 1,506 by gRPC; JSON costs about 0.1 µs
        # more for each number (benchmarks/README.md).
        if options.get("as_json") and _bytes_of(records) <= SMALL_BYTES and has_json(signature):
            return super().predict(target, records, **options)
        message = request_pieces(target, records, signature)
        path = f"{model_path(target)}:{target.method}"

        def ask(chosen: Instance) -> ModelAnswer:
            return self._grpc.predict(
                chosen,
                message,
                f"http://{chosen.host}:{chosen.rest_port}{path}",
                options.get("timeout_seconds"),
            )

        answer = self._load_balancer.send(options.get("instance"), ask)
        if isinstance(answer, TensorAnswer):
            self.signatures.answered(target, answer.version)
        return answer

    def close(self) -> None:
        """Close idle connections; idempotent."""
        self._grpc.close()
        super().close()


def _bytes_of(batch: Batch) -> int:
    """Size of the batch's arrays; only the first strings are counted if there are many."""
    sizes = (
        sum(map(len, array.ravel()[:SMALL_BYTES])) + array.size if array.dtype == BYTES else array.nbytes
        for array in batch.inputs.values()
    )
    empty = (array.shape for array in batch.inputs.values() if not array.size)
    return sum(sizes) + sum(map(nested_bytes, empty))


def request_message(target: Target, batch: Batch, signature: Signature) -> bytes:
    """Serialize a PredictRequest; raises BadInput for an array that no tensor can be made of."""
    return b"".join(request_pieces(target, batch, signature))


def request_pieces(target: Target, batch: Batch, signature: Signature) -> list[Piece]:
    """Serialize a PredictRequest in pieces: an array whose memory is in order is not copied."""
    pieces = message_field(1, [_spec(target)])
    for name, array in batch.inputs.items():
        pieces += map_entry(2, name, _tensor(name, array, signature))
    return pieces


@lru_cache(maxsize=1024)
def _spec(target: Target) -> bytes:
    return model_spec(target.model, target.version, target.label, target.signature)


def _tensor(name: str, array: npt.NDArray[Any], signature: Signature) -> Iterator[Piece]:
    spec = signature.inputs.get(name)
    try:
        if spec is not None and spec.dtype == _BFLOAT16 and array.dtype == np.float32:
            return iter(to_pieces(to_bits(array), data_type=DataType.DT_BFLOAT16))
        return iter(to_pieces(array))
    except TypeError as error:
        raise BadInput(f'Input "{name}" is not a tensor: {error}.') from error
