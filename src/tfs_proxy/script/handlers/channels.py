"""gRPC channels for a script's context: one per worker and instance, opened when first asked for."""

from threading import Lock
from typing import Any

from tfs_proxy.deployment import Instance
from tfs_proxy.upstream.grpc import open_channel


class Channels:
    """A worker's channels by instance. It must be made after the fork: gRPC does not survive one."""

    def __init__(self) -> None:
        self._channels: dict[Instance, Any] = {}
        self._lock = Lock()

    def get(self, instance: Instance) -> Any:
        """The ``grpc.Channel`` to ``instance``: over its unix socket, or its port where it has none."""
        with self._lock:
            channel = self._channels.get(instance)
            if channel is None:
                channel = self._channels[instance] = open_channel(instance)
            return channel

    def close(self) -> None:
        """Close every channel; idempotent."""
        with self._lock:
            while self._channels:
                self._channels.popitem()[1].close()
