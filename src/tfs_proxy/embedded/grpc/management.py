"""Who may reload the configuration and take profiles: by default every caller, else those on the unix socket.

The socket's folder says who may connect; a TCP port on 127.0.0.1 is open to every local user.
"""

from collections.abc import Mapping

from tfs_proxy.embedded.errors import ServingError
from tfs_proxy.embedded.grpc import profiler, services
from tfs_proxy.wire.grpc_codes import GrpcCode

MANAGEMENT: Mapping[str, frozenset[str]] = {
    services.MODEL_SERVICE: frozenset({"HandleReloadConfigRequest"}),
    profiler.SERVICE: frozenset({"Profile", "Terminate", "Monitor"}),
}
"""Methods by service that change what is served, write files, or show other callers' requests."""


def on_socket_only(
    handlers: services.Handlers,
) -> dict[str, Mapping[str, services.Handler]]:
    """``handlers``, whose `MANAGEMENT` refuses every caller that is not on the unix socket."""
    return {
        service: {
            name: _for_socket(name, run) if name in MANAGEMENT.get(service, ()) else run
            for name, run in methods.items()
        }
        for service, methods in handlers.items()
    }


def _for_socket(name: str, run: services.Handler) -> services.Handler:
    def handle(message: bytes, context: services.CallContext) -> bytes:
        if not context.peer().startswith("unix:"):
            raise ServingError(
                GrpcCode.PERMISSION_DENIED, f"{name} is accepted only on the model server's unix socket."
            )
        return run(message, context)

    return handle
