"""The health service, grpc.health.v1, of grpcio's own package: the server's state asked once or watched.

A watch holds none of the threads for calls: a change of state is sent when it happens.
"""

import threading
from collections.abc import Callable
from typing import Any, Final

from grpc_health.v1 import health
from grpc_health.v1.health_pb2 import HealthCheckResponse

from tfs_proxy.embedded.core.catalog import Catalog

SERVICE: Final = "grpc.health.v1.Health"

_NAMES = (
    "",
    "ModelService",
    "PredictionService",
    "tensorflow.serving.ModelService",
    "tensorflow.serving.PredictionService",
)
"""What has a health: the server as a whole, and its services under the names that clients use."""


class Health(health.HealthServicer):  # type: ignore[misc]  # the package has no types
    """Before the first models are loaded the server is not serving, nor is it when it stops."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__()
        self._catalog = catalog
        self._closing = threading.Lock()
        self._closed = False
        self._watches: set[_Watch] = set()
        self._show(HealthCheckResponse.NOT_SERVING)

    def Watch(self, request: Any, context: Any, send_response_callback: Callable[[Any], None]) -> None:  # noqa: N802 (the package's name)
        """Send the status of one name at once, and again whenever it changes; returns at once too."""
        watch = _Watch(send_response_callback)
        with self._closing:
            super().Watch(request, context, watch)
            if self._closed:
                watch(None)
            elif context.add_callback(lambda: self._watches.discard(watch)):
                self._watches.add(watch)

    def follow(self) -> None:
        """Wait until the first models are loaded, and show that."""
        with self._catalog.changed:
            self._catalog.changed.wait_for(lambda: not self._catalog.starting)
        self._show(HealthCheckResponse.SERVING)

    def close(self) -> None:
        """Send those who watch that nothing is served any longer, and end their streams."""
        with self._closing:
            self._closed = True
            self.enter_graceful_shutdown()
            for watch in list(self._watches):
                watch(None)

    def _show(self, status: Any) -> None:
        for name in _NAMES:
            self.set(name, status)


class _Watch:
    """Sends the messages of one stream, and ends it once only: the package would do so twice."""

    def __init__(self, send: Callable[[Any], None]) -> None:
        self._send = send
        self._ended = False

    def __call__(self, response: Any) -> None:
        """Send a message; None is the end."""
        if not self._ended:
            self._ended = response is None
            self._send(response)
