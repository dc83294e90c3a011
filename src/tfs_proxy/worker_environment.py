"""What the supervisor passes to each worker: the run's workspace, in a variable of the package's own."""

from pathlib import Path

from tfs_proxy.errors import SettingsError
from tfs_proxy.layout import Workspace
from tfs_proxy.settings import inherited_environment

WORKSPACE_VARIABLE = "TFS_PROXY_WORKSPACE"


def worker_workspace() -> Workspace:
    """The workspace of the run that started this worker; raises SettingsError outside of a run."""
    root = inherited_environment().get(WORKSPACE_VARIABLE)
    if not root:
        raise SettingsError(f"{WORKSPACE_VARIABLE} is not set: workers are started by `tfs-proxy serve`.")
    return Workspace(Path(root))
