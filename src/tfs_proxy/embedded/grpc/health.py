"""The health service, grpc.health.v1: the server's state asked once or watched, beside `services`.

Names, codes and texts are those of gRPC's own health service in C++, which TF Serving turns on. A watch
holds none of the threads for calls: a change of state is sent when it happens.
"""

import threading
from collections.abc import Callable

from google.protobuf.message import DecodeError

from tfs_proxy.embedded.core.call_threads import aside
from tfs_proxy.embedded.core.catalog import Catalog, still_loading
from tfs_proxy.embedded.errors import ServingError
from tfs_proxy.embedded.grpc.services import CallContext, Send, StreamContext
from tfs_proxy.protos import HealthCheckRequest, HealthCheckResponse
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.grpc_server.statuses import Status
from tfs_proxy.wire.protobuf_writer import Piece

SERVICE = "grpc.health.v1.Health"

_NAMES = frozenset(
    {
        "",
        "ModelService",
        "PredictionService",
        "tensorflow.serving.ModelService",
        "tensorflow.serving.PredictionService",
    }
)
"""What has a health: the server as a whole, and its services under the names that clients use."""

_LONGEST_NAME = 200

ServingStatus = HealthCheckResponse.ServingStatus


class _Watch:
    """One stream of statuses; several threads may have a status to send."""

    def __init__(self, status: Callable[[], ServingStatus], context: StreamContext, send: Send) -> None:
        self._status = status
        self._context = context
        self._send = send
        self._sending = threading.Lock()
        self._sent: ServingStatus | None = None

    def send_change(self) -> None:
        """Send the status, if it is another one than the last."""
        with self._sending:
            status = self._status()
            if status != self._sent:
                self._sent = status
                self._send(HealthCheckResponse(status=status).SerializeToString())

    def end(self) -> None:
        """Send the last status, and end the stream."""
        self.send_change()
        self._context.set_status(Status(GrpcCode.UNAVAILABLE, "The model server is stopping"))
        self._send(None)


class Health:
    """Both methods. Before the first models are loaded the server is not serving, nor is it when it stops."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._watches: set[_Watch] = set()
        self._stopping = False

    def check(self, message: Piece, _context: CallContext) -> bytes:
        """The status of one name. Raises ServingError if it has none.

        Before the first models are loaded it fails as a request does; the official server's port
        is closed until then.
        """
        status = self._status(_name(message, GrpcCode.INVALID_ARGUMENT))
        if status == HealthCheckResponse.SERVICE_UNKNOWN:
            raise ServingError(GrpcCode.NOT_FOUND, "service name unknown")
        if self._catalog.starting:
            raise still_loading()
        return HealthCheckResponse(status=status).SerializeToString()

    def watch(self, message: Piece, context: StreamContext, send: Send) -> None:
        """Send the status of one name at once, and again whenever it changes; returns at once too.

        Raises ServingError if the message names none.
        """
        name = _name(message, GrpcCode.INTERNAL)
        watch = _Watch(lambda: self._status(name), context, send)
        with self._lock:
            stopping = self._stopping
            if not stopping:
                self._watches.add(watch)
        with aside():
            if stopping:
                watch.end()
            elif context.add_callback(lambda: self._forget(watch)):
                watch.send_change()
            else:
                self._forget(watch)

    def follow(self) -> None:
        """Wait until the first models are loaded, and send the new status to those who watch."""
        with self._catalog.changed:
            self._catalog.changed.wait_for(lambda: not self._catalog.starting)
        with self._lock:
            _on_threads([watch.send_change for watch in self._watches])

    def close(self) -> None:
        """Send those who watch that nothing is served any longer, and end their streams."""
        with self._lock:
            self._stopping = True
            _on_threads([watch.end for watch in self._watches])
            self._watches.clear()

    def _status(self, name: str) -> ServingStatus:
        if self._stopping:
            return HealthCheckResponse.NOT_SERVING
        if name not in _NAMES:
            return HealthCheckResponse.SERVICE_UNKNOWN
        return HealthCheckResponse.NOT_SERVING if self._catalog.starting else HealthCheckResponse.SERVING

    def _forget(self, watch: _Watch) -> None:
        with self._lock:
            self._watches.discard(watch)


def _name(message: Piece, code: GrpcCode) -> str:
    try:
        name: str = HealthCheckRequest.FromString(message).service  # type: ignore[arg-type]  # any buffer will do
    except DecodeError as error:
        raise ServingError(code, "could not parse request") from error
    if len(name.encode()) > _LONGEST_NAME:
        raise ServingError(code, "could not parse request")
    return name


def _on_threads(steps: list[Callable[[], None]]) -> None:
    """Run each on a thread of its own: a client that takes nothing holds up only itself."""
    for step in steps:
        threading.Thread(target=step, daemon=True, name="health").start()
