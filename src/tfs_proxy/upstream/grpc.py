"""PredictionService.Predict over gRPC, on the model server's unix socket: bytes out, bytes in.

grpc is imported when the first channel is opened, so after the fork of the workers: it does not
survive one. Under gevent the worker class has made it wait on gevent's loop before that.
"""

import socket
from collections.abc import Callable
from threading import Lock
from typing import Any

from tfs_proxy.deployment import Instance
from tfs_proxy.errors import NotReached, UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.observe.tracing.outgoing import OUTGOING
from tfs_proxy.serving_json import answer_text as serving_text
from tfs_proxy.upstream.grpc_channels import CONNECT_FAILED, OPTIONS
from tfs_proxy.upstream.interface import JSON_HEADERS, ModelAnswer
from tfs_proxy.upstream.tensor_answer import TensorAnswer
from tfs_proxy.wire.error_body import MODEL_SERVER, connection_closed, not_answered, not_reached
from tfs_proxy.wire.grpc_codes import HTTP_STATUS, GrpcCode

PREDICT = "/tensorflow.serving.PredictionService/Predict"

_PROBE_SECONDS = 1.0
INTERNAL_ERROR = 500


def open_channel(instance: Instance) -> Any:
    """A ``grpc.Channel`` to ``instance``: over its unix socket, or its port if it has none."""
    import grpc

    address = (
        f"unix:{instance.grpc_socket}" if instance.grpc_socket else f"{instance.host}:{instance.grpc_port}"
    )
    return grpc.insecure_channel(address, options=OPTIONS)


class Channels:
    """One channel per instance, opened when first needed, shared by threads and greenlets."""

    def __init__(self, open_channel: Callable[[Instance], Any] = open_channel) -> None:
        self._open_channel = open_channel
        self._channels: dict[Instance, Any] = {}
        self._lock = Lock()

    def get(self, instance: Instance) -> Any:
        """The ``grpc.Channel`` to ``instance``."""
        with self._lock:
            if instance not in self._channels:
                self._channels[instance] = self._open_channel(instance)
            return self._channels[instance]

    def close(self) -> None:
        """Close every channel; idempotent."""
        with self._lock:
            while self._channels:
                self._channels.popitem()[1].close()


class GrpcCalls:
    """Calls of Predict over one channel per instance, shared by threads and greenlets."""

    def __init__(
        self, timeout_seconds: float, open_channel: Callable[[Instance], Any] = open_channel
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._channels = Channels(open_channel)
        self._methods: dict[Instance, Any] = {}

    def predict(
        self, instance: Instance, message: bytes, url: str = "", timeout_seconds: float | None = None
    ) -> ModelAnswer:
        """Send a serialized PredictRequest to ``instance``.

        What the model server refuses is an answer with the status and body that its REST side gives.
        Raises NotReached if no connection opens, UpstreamUnavailable if one breaks,
        UpstreamTimeout if no answer comes in time, UpstreamError if it can't be read.
        """
        import grpc

        timeout_seconds = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        metadata = tuple(OUTGOING.headers().items())
        try:
            answer = self._method(instance)(message, timeout=timeout_seconds, metadata=metadata or None)
            return TensorAnswer(answer, url)
        except grpc.RpcError as error:
            return _refusal(error, instance, url, timeout_seconds)

    def close(self) -> None:
        """Close every channel; idempotent."""
        self._methods.clear()
        self._channels.close()

    def _method(self, instance: Instance) -> Any:
        method = self._methods.get(instance)
        if method is None:
            method = self._methods[instance] = self._channels.get(instance).unary_unary(PREDICT)
        return method


def _refusal(error: Any, instance: Instance, url: str, timeout_seconds: float) -> ModelAnswer:
    """What a failed call comes to: an answer if the model server said so, else an exception."""
    code, text = GrpcCode(error.code().value[0]), error.details() or ""
    if code is GrpcCode.DEADLINE_EXCEEDED:
        raise UpstreamTimeout(not_answered(MODEL_SERVER, timeout_seconds)) from error
    if code is GrpcCode.UNAVAILABLE:
        if CONNECT_FAILED in text:
            raise NotReached(not_reached(MODEL_SERVER)) from error
        # NOTE: grpc does not tell a server's own word, a full queue, from its end: the socket does.
        if not _listens(instance):
            raise UpstreamUnavailable(connection_closed(MODEL_SERVER)) from error
    return ModelAnswer(HTTP_STATUS[code], serving_text.error(text), JSON_HEADERS, url)


def _listens(instance: Instance) -> bool:
    """Whether a server accepts connections at the instance's address."""
    family = socket.AF_UNIX if instance.grpc_socket else socket.AF_INET
    address = instance.grpc_socket or (instance.host, instance.grpc_port)
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        return probe.connect_ex(address) == 0
