"""Upstream over both APIs of a model server: arrays go over gRPC, JSON and metadata over REST."""

import socket
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tfs_proxy.data.serving_json import answer_text as serving_text
from tfs_proxy.observe.logs.reasons import note_answer_of_model_server
from tfs_proxy.observe.traces import OUTGOING
from tfs_proxy.serving.upstream.interface import JSON_HEADERS, ModelAnswer, Records, TensorAnswer
from tfs_proxy.serving.upstream.load_balancer import LoadBalancer
from tfs_proxy.serving.upstream.rest import RestUpstream, model_path
from tfs_proxy.values.batch import BYTES, Batch
from tfs_proxy.values.deployment import Instance
from tfs_proxy.values.errors import BadInput, UpstreamRefused, UpstreamUnavailable
from tfs_proxy.values.signature import Signature, Target
from tfs_proxy.wire.connect import authority, connect_tcp, connect_unix_patiently
from tfs_proxy.wire.data_types import DataType
from tfs_proxy.wire.dtypes import has_json
from tfs_proxy.wire.error_body import MODEL_SERVER, connection_closed
from tfs_proxy.wire.grpc_client import GrpcPool
from tfs_proxy.wire.grpc_codes import HTTP_STATUS, GrpcCode
from tfs_proxy.wire.grpc_messages import CallAnswer
from tfs_proxy.wire.protobuf_writer import Piece, map_entry, message_field
from tfs_proxy.wire.protos.predict import model_spec
from tfs_proxy.wire.protos.tensors import to_bits, to_pieces

SMALL_BYTES = 16_384
"""Largest records that go over REST when JSON is wanted."""

_BFLOAT16 = "DT_BFLOAT16"


class BinaryUpstream:
    """`tfs_proxy.serving.upstream.interface.Upstream` over gRPC and REST; threads and greenlets share one.

    ``timeout_seconds`` is how long one call may take. Make it in the worker, after the fork: processes
    must not share connections.
    """

    def __init__(self, instances: Sequence[Instance], timeout_seconds: float) -> None:
        self._load_balancer = LoadBalancer(instances)
        self._rest = RestUpstream(instances, timeout_seconds, load_balancer=self._load_balancer)
        self._grpc = GrpcCalls(timeout_seconds)

    @property
    def rest(self) -> RestUpstream:
        """REST side, whose connections `pooled_requests` shares."""
        return self._rest

    def choose(self) -> Instance:
        """Choose the least busy instance that is up."""
        return self._load_balancer.choose()

    def signature(self, target: Target) -> Signature:
        return self._rest.signature(target)

    def signatures_of(self, target: Target) -> Mapping[str, Signature]:
        return self._rest.signatures_of(target)

    def predict(
        self,
        target: Target,
        records: Records,
        *,
        instance: Instance | None = None,
        timeout_seconds: float | None = None,
        as_json: bool = False,
    ) -> ModelAnswer:
        """Send a `Batch` over gRPC, large arrays from where they are; all else over REST.

        A small one goes over REST if its answer is wanted ``as_json``, and all types of the model have JSON.
        """
        if not isinstance(records, Batch):
            return self._rest.predict(target, records, instance=instance, timeout_seconds=timeout_seconds)
        try:
            signature = self.signature(target)
        except UpstreamRefused as refused:
            return ModelAnswer.refused(refused)
        # PERF: rows "tiny array": 5,487 requests/s by pooled REST, 1,506 by gRPC; JSON costs about 0.1 µs
        # more for each number (benchmarks/README.md).
        if as_json and _bytes_of(records) <= SMALL_BYTES and has_json(signature):
            return self._rest.predict(target, records, instance=instance, timeout_seconds=timeout_seconds)
        message = request_pieces(target, records, signature)
        path = f"{model_path(target)}:{target.method}"

        def ask(chosen: Instance) -> ModelAnswer:
            return self._grpc.predict(
                chosen, message, f"http://{chosen.host}:{chosen.rest_port}{path}", timeout_seconds
            )

        answer = self._load_balancer.send(instance, ask)
        if isinstance(answer, TensorAnswer):
            self._rest.signatures.answered(target, answer.version)
        return answer

    def close(self) -> None:
        """Close idle connections; idempotent."""
        self._grpc.close()
        self._rest.close()


def _bytes_of(batch: Batch) -> int:
    """Size of the batch's arrays; only the first strings are counted if there are many."""
    return sum(
        sum(map(len, islice(array.flat, SMALL_BYTES))) + array.size if array.dtype == BYTES else array.nbytes
        for array in batch.inputs.values()
    )


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


PREDICT = "/tensorflow.serving.PredictionService/Predict"

_PROBE_SECONDS = 1.0
_UNIX_AUTHORITY = "localhost"


class GrpcCalls:
    """Calls of Predict over a pool of connections per instance, shared by threads and greenlets."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._pools: dict[Instance, GrpcPool] = {}

    def predict(
        self,
        instance: Instance,
        message: Sequence[Piece],
        url: str = "",
        timeout_seconds: float | None = None,
    ) -> ModelAnswer:
        """Send a serialized PredictRequest, in pieces, to ``instance``.

        A refusal of the model server is an answer with the status and body that its REST side gives.
        Raises NotReached if no connection opens, UpstreamUnavailable if one breaks,
        UpstreamTimeout if no answer comes in time, UpstreamError if it can't be read.
        """
        seconds = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        answer = self._pool(instance).call(PREDICT, message, seconds, OUTGOING.headers())
        if answer.code is GrpcCode.OK:
            return TensorAnswer.read(answer.message, url)
        return _refusal(answer, instance, url)

    def close(self) -> None:
        """Close every connection; idempotent."""
        while self._pools:
            self._pools.popitem()[1].close()

    def _pool(self, instance: Instance) -> GrpcPool:
        pool = self._pools.get(instance)
        return self._pools.setdefault(instance, _pool_of(instance)) if pool is None else pool


def _pool_of(instance: Instance) -> GrpcPool:
    """Connections to the unix socket of ``instance``, or to its port if it has none."""
    if instance.grpc_socket:
        return GrpcPool(partial(connect_unix_patiently, Path(instance.grpc_socket)), _UNIX_AUTHORITY)
    open_connection = partial(connect_tcp, instance.host, instance.grpc_port)
    return GrpcPool(open_connection, authority(instance.host, instance.grpc_port))


def _refusal(answer: CallAnswer, instance: Instance, url: str) -> ModelAnswer:
    """Answer for a refused call; raises UpstreamUnavailable if the server has ended."""
    # NOTE: a server that ends answers as one with a full queue: the socket tells them apart.
    if answer.code is GrpcCode.UNAVAILABLE and not _listens(instance):
        raise UpstreamUnavailable(connection_closed(MODEL_SERVER))
    body = serving_text.error(answer.text)
    note_answer_of_model_server(body)
    return ModelAnswer(HTTP_STATUS[answer.code], body, JSON_HEADERS, url)


def _listens(instance: Instance) -> bool:
    """True if a server accepts connections at the instance's address."""
    family = socket.AF_UNIX if instance.grpc_socket else socket.AF_INET
    address = instance.grpc_socket or (instance.host, instance.grpc_port)
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        return probe.connect_ex(address) == 0
