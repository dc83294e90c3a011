"""The folder of one run, made before anything else is written; if that fails, the error has the remedy."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tfs_proxy.errors import SettingsError
from tfs_proxy.layout import Workspace

PREFIX = "tfs-proxy-"
REMEDY = (
    "If the root is read-only, mount a folder that can be written to (docker run --read-only --tmpfs /tmp, "
    "an emptyDir at /tmp in Kubernetes), or name one in TFS_PROXY_HOME."
)


def make_workspace(home: str | None, prefix: str = PREFIX) -> Path:
    """A new folder below ``home`` (None: the system's temporary folder).

    Raises SettingsError with the remedy if nothing can be written there.
    """
    try:
        if home is not None:
            Path(home).mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=prefix, dir=home)).resolve()
    except OSError as error:
        what = f"TFS_PROXY_HOME={home} can't be written" if home else "No folder can be written to"
        raise SettingsError(f"{what}: {error.strerror}. {REMEDY}") from error


@contextmanager
def temporary_workspace(home: str | None, prefix: str) -> Iterator[Workspace]:
    """A workspace that is removed at the end; raises as `make_workspace` does."""
    workspace = Workspace(make_workspace(home, prefix))
    try:
        yield workspace
    finally:
        shutil.rmtree(workspace.root, ignore_errors=True)
