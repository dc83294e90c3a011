"""Channels of grpcio to a model server, for scripts; their options are the translator's, too.

grpc is imported when a script first asks, so after the fork of the workers: a channel does not survive one.
"""

from collections.abc import Callable
from threading import Lock
from typing import Any

from tfs_proxy.settings.settings import most_answer_bytes
from tfs_proxy.values.deployment import Instance
from tfs_proxy.wire.grpc_messages import MOST_MESSAGE_BYTES

OPTIONS = (
    ("grpc.max_receive_message_length", min(most_answer_bytes(), MOST_MESSAGE_BYTES)),
    ("grpc.max_send_message_length", -1),
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


def open_channel(instance: Instance) -> Any:
    """Open a ``grpc.Channel`` to ``instance``: over its unix socket, or its port if it has none."""
    import grpc

    address = (
        f"unix:{instance.grpc_socket}" if instance.grpc_socket else f"{instance.host}:{instance.grpc_port}"
    )
    return grpc.insecure_channel(address, options=OPTIONS)


class Channels:
    """Channels by instance, opened when first needed, shared by threads and greenlets."""

    def __init__(self, open_channel: Callable[[Instance], Any] = open_channel) -> None:
        self._open_channel = open_channel
        self._channels: dict[Instance, Any] = {}
        self._lock = Lock()

    def get(self, instance: Instance) -> Any:
        with self._lock:
            if instance not in self._channels:
                self._channels[instance] = self._open_channel(instance)
            return self._channels[instance]

    def close(self) -> None:
        """Close every channel; idempotent."""
        with self._lock:
            while self._channels:
                self._channels.popitem()[1].close()
