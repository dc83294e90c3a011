"""PredictionService.Predict over gRPC, on the model server's unix socket: a message out, a message in."""

import socket
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tfs_proxy.deployment import Instance
from tfs_proxy.errors import UpstreamUnavailable
from tfs_proxy.observe.logs.reasons import note_answer_of_model_server
from tfs_proxy.observe.tracing.outgoing import OUTGOING
from tfs_proxy.serving_json import answer_text as serving_text
from tfs_proxy.upstream.interface import JSON_HEADERS, ModelAnswer
from tfs_proxy.upstream.tensor_answer import TensorAnswer
from tfs_proxy.wire.connect import authority, connect_tcp, connect_unix_patiently
from tfs_proxy.wire.error_body import MODEL_SERVER, connection_closed
from tfs_proxy.wire.grpc_client import GrpcPool
from tfs_proxy.wire.grpc_codes import HTTP_STATUS, GrpcCode
from tfs_proxy.wire.grpc_messages import CallAnswer
from tfs_proxy.wire.protobuf_writer import Piece

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

        What the model server refuses is an answer with the status and body that its REST side gives.
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
    """The answer that a refused call comes to; raises UpstreamUnavailable if the server has ended."""
    # NOTE: a server that ends says the same as one whose queue is full: the socket tells them apart.
    if answer.code is GrpcCode.UNAVAILABLE and not _listens(instance):
        raise UpstreamUnavailable(connection_closed(MODEL_SERVER))
    body = serving_text.error(answer.text)
    note_answer_of_model_server(body)
    return ModelAnswer(HTTP_STATUS[answer.code], body, JSON_HEADERS, url)


def _listens(instance: Instance) -> bool:
    """Whether a server accepts connections at the instance's address."""
    family = socket.AF_UNIX if instance.grpc_socket else socket.AF_INET
    address = instance.grpc_socket or (instance.host, instance.grpc_port)
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        return probe.connect_ex(address) == 0
