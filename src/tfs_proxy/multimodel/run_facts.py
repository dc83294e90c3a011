"""What all models of a run share: the run makes it, and each stack takes what it needs of it."""

from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from tfs_proxy.capture.files import Counts
from tfs_proxy.layout import Workspace
from tfs_proxy.multimodel.gates import HttpGates
from tfs_proxy.multimodel.model_servers import SharedModelServers
from tfs_proxy.observe.logs.config import LogConfig
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor.grpc_routes import GrpcRoutes
from tfs_proxy.supervisor.host.load_priority import LoadPriority
from tfs_proxy.supervisor.host.watchdog import Watchdog
from tfs_proxy.supervisor.nginx.many_models import COMMON_SOCKET
from tfs_proxy.supervisor.process import Spawn


class RunFacts(Struct, frozen=True):
    """What all models of a run share: settings, model server, environment, folder, clean-up and log.

    ``port`` is the one that clients know, ``priority`` that of loads. ``captured`` counts
    captured records. ``servers`` are there in shared mode,
    in which models without a script are served by the workers that accept on ``common_socket``.
    ``spawn_workers`` is how gunicorn is started.
    """

    settings: Settings
    model_server: str
    environ: Mapping[str, str]
    workspace: Workspace
    watchdog: Watchdog
    log: LogConfig
    port: int
    gates: HttpGates
    grpc_routes: GrpcRoutes
    spawn_workers: Spawn
    priority: LoadPriority
    captured: Callable[[Counts], None]
    servers: SharedModelServers | None = None

    @property
    def common_socket(self) -> Path:
        """Where the workers for all models without a script accept, in shared mode."""
        return self.workspace.root / COMMON_SOCKET
