"""Channels of grpcio to the model servers: Predict with bytes in and out, and the channels of scripts.

Their options are the translator's, too. grpc is imported before the workers are forked, and nothing of it
runs until a worker opens a channel, which does not survive a fork.
"""

import os
import re
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any

import grpc

from tfs_proxy.data.serving_json import answer_text as serving_text
from tfs_proxy.observe.logs.reasons import note_answer_of_model_server
from tfs_proxy.observe.request_record import require_client
from tfs_proxy.observe.traces import OUTGOING
from tfs_proxy.serving.upstream.interface import JSON_HEADERS, ModelAnswer, TensorAnswer
from tfs_proxy.settings.settings import most_answer_bytes
from tfs_proxy.values.deployment import Instance
from tfs_proxy.values.errors import (
    AnswerTooLarge,
    NotReached,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from tfs_proxy.values.memory import RESERVED_FROM_BYTES
from tfs_proxy.wire.connect import authority
from tfs_proxy.wire.error_body import (
    MODEL_SERVER,
    answer_too_large,
    connection_closed,
    not_answered,
    not_reached,
)
from tfs_proxy.wire.grpc_codes import HTTP_STATUS, GrpcCode
from tfs_proxy.wire.http_client import LOOK_SECONDS
from tfs_proxy.wire.protobuf_writer import Piece

PREDICT = "/tensorflow.serving.PredictionService/Predict"

MOST_MESSAGE_BYTES = 2**31 - 1
"""Limit of protobuf."""

_MOST_METADATA_BYTES = 1 << 16

OPTIONS = (
    ("grpc.max_receive_message_length", min(most_answer_bytes(), MOST_MESSAGE_BYTES)),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", _MOST_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", _MOST_METADATA_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
"""Options: the limit of every answer, and none of requests (docs/reference/tensorflow-serving.md).

A restarted server is found soon. The option of the least back-off is grpc's limit of the time for a
connection, too: that stays at its own 20 seconds, as a model server that is busy is not down.
"""

CONNECT_FAILED = "failed to connect"
"""Text of an UNAVAILABLE if no connection could be opened, so that nothing was sent."""

_BROKEN = re.compile(
    "Stream removed|Socket closed|Connection reset|Broken pipe|GOAWAY|RST_STREAM|recvmsg|sendmsg"
)
"""Texts of grpc's own UNAVAILABLE for a connection that has broken."""

_TOO_LARGE = "CLIENT: Received message larger than max"
_TOO_LONG = "received metadata size exceeds"
"""Texts of grpc's own RESOURCE_EXHAUSTED, which is not the model server's."""

_COPIES = 2
"""Copies of a message while it is sent: its pieces joined, and grpc's own."""

_PROBE_SECONDS = 1.0

Count = Callable[[int], None]
"""Counts so many bytes as in use, so that later requests wait for them."""

FORKED = (
    "A process that the script has forked can't ask models with arrays: ask in the worker itself, "
    "before or after what the process does."
)


def open_channel(instance: Instance) -> Any:
    """Open a ``grpc.Channel`` to ``instance``: over its unix socket, or its port if it has none."""
    address = f"unix:{instance.grpc_socket}" if instance.grpc_socket else ""
    return grpc.insecure_channel(address or authority(instance.host, instance.grpc_port), options=OPTIONS)


class Channels:
    """Channels by instance, opened when first needed, shared by threads and greenlets."""

    def __init__(self) -> None:
        self._channels: dict[Instance, Any] = {}
        self._lock = Lock()

    def get(self, instance: Instance) -> Any:
        with self._lock:
            if instance not in self._channels:
                self._channels[instance] = open_channel(instance)
            return self._channels[instance]

    def close(self) -> None:
        """Close every channel; idempotent."""
        with self._lock:
            while self._channels:
                self._channels.popitem()[1].close()


class GrpcCalls:
    """Calls of Predict over a channel to each instance, which all threads and greenlets share.

    ``count`` gets the memory of each large message, and the same less once it was answered. Make it in the
    worker, after the fork.
    """

    def __init__(self, timeout_seconds: float, count: Count = lambda _: None) -> None:
        self._timeout_seconds = timeout_seconds
        self._count = count
        self._channels = Channels()
        self._methods: dict[Instance, Any] = {}
        self._last_seconds: dict[Instance, float] = {}
        self._pid = os.getpid()

    def predict(
        self,
        instance: Instance,
        message: Sequence[Piece],
        url: str = "",
        timeout_seconds: float | None = None,
    ) -> ModelAnswer:
        """Send a serialized PredictRequest, in pieces, to ``instance``.

        A refusal of the model server is an answer with the status and body that its REST side gives.
        Raises NotReached if no connection opens, UpstreamUnavailable if one breaks, UpstreamTimeout if no
        answer comes in time, AnswerTooLarge, and UpstreamError if it can't be read.
        """
        if os.getpid() != self._pid:
            # A fork leaves grpc's threads behind: a call would hang, and spoil the worker's connection.
            raise UpstreamError(FORKED)
        seconds = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        method = self._methods.get(instance)
        if method is None:
            method = self._methods[instance] = self._channels.get(instance).unary_unary(PREDICT)
        size = sum(map(len, message)) * _COPIES
        if size >= RESERVED_FROM_BYTES:
            self._count(size)
        try:
            metadata = tuple(OUTGOING.headers().items())
            # A call that can be cancelled takes 150 µs more.
            is_slow = self._last_seconds.get(instance, 0.0) > LOOK_SECONDS
            call = _cancellable(method) if is_slow else method
            began = time.monotonic()
            answer = call(b"".join(message), timeout=seconds, metadata=metadata)
            self._last_seconds[instance] = time.monotonic() - began
        except grpc.RpcError as error:
            return _refusal(error, instance, seconds, url)
        finally:
            if size >= RESERVED_FROM_BYTES:
                self._count(-size)
        return TensorAnswer.read(answer, url)

    def close(self) -> None:
        """Close every channel; idempotent."""
        self._methods.clear()
        self._channels.close()


def _cancellable(method: Any) -> Callable[..., bytes]:
    """Make calls of ``method`` end as soon as nobody waits for the answer; they raise ClientGone then."""

    def call(message: bytes, **options: Any) -> bytes:
        answering = method.future(message, **options)
        try:
            while True:
                with suppress(grpc.FutureTimeoutError):
                    answer: bytes = answering.result(LOOK_SECONDS)
                    return answer
                require_client()
        except BaseException:
            answering.cancel()
            raise

    return call


def _refusal(error: Any, instance: Instance, seconds: float, url: str) -> ModelAnswer:
    """Answer for a call that the model server refused; raises for one that it did not answer."""
    code = GrpcCode[error.code().name]
    text = error.details() or ""
    if code is GrpcCode.DEADLINE_EXCEEDED:
        raise UpstreamTimeout(not_answered(MODEL_SERVER, seconds)) from error
    if code is GrpcCode.UNAVAILABLE:
        if text.startswith(CONNECT_FAILED):
            raise NotReached(not_reached(MODEL_SERVER)) from error
        # NOTE: a server that ends answers as one with a full queue: the socket tells them apart.
        if _BROKEN.search(text) or not _listens(instance):
            raise UpstreamUnavailable(connection_closed(MODEL_SERVER)) from error
    if code is GrpcCode.RESOURCE_EXHAUSTED and _TOO_LARGE in text:
        raise AnswerTooLarge(answer_too_large(MODEL_SERVER, most_answer_bytes())) from error
    if code is GrpcCode.RESOURCE_EXHAUSTED and _TOO_LONG in text:
        raise UpstreamError(f"{MODEL_SERVER}'s answer over gRPC can't be read: {text}.") from error
    body = serving_text.error(text)
    note_answer_of_model_server(body)
    return ModelAnswer(HTTP_STATUS[code], body, JSON_HEADERS, url)


def _listens(instance: Instance) -> bool:
    """True if a server accepts connections at the instance's address."""
    family = socket.AF_UNIX if instance.grpc_socket else socket.AF_INET
    address = instance.grpc_socket or (instance.host, instance.grpc_port)
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        return probe.connect_ex(address) == 0
