"""What the supervisor passes to each worker, in environment variables of the package's own."""

from collections.abc import Mapping
from dataclasses import dataclass

from tfs_proxy.errors import SettingsError
from tfs_proxy.settings import inherited_environment

_VARIABLES = {
    "control_socket": "TFS_PROXY_CONTROL_SOCKET",
    "heartbeat_socket": "TFS_PROXY_HEARTBEAT_SOCKET",
    "worker_sockets_file": "TFS_PROXY_WORKER_SOCKETS_FILE",
    "journal_folder": "TFS_PROXY_JOURNAL_FOLDER",
}


@dataclass(frozen=True, slots=True)
class WorkerEnvironment:
    """Paths: the supervisor's unix sockets, the locks of worker sockets, and the requests' journal."""

    control_socket: str
    heartbeat_socket: str
    worker_sockets_file: str
    journal_folder: str

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> "WorkerEnvironment":
        """Read them from ``environ`` (default: the process's own). Raises SettingsError without them."""
        environ = inherited_environment() if environ is None else environ
        for variable in _VARIABLES.values():
            if not environ.get(variable):
                raise SettingsError(f"{variable} is not set: workers are started by `tfs-proxy serve`.")
        return cls(**{name: environ[variable] for name, variable in _VARIABLES.items()})

    def variables(self) -> dict[str, str]:
        """The environment variables to start a worker with."""
        return {variable: getattr(self, name) for name, variable in _VARIABLES.items()}
