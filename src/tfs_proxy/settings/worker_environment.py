"""Values that the supervisor passes on: the run's workspace, for workers, and requests to the zygote."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct, convert, to_builtins

from tfs_proxy.settings.settings import inherited_environment
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.layout import Workspace

WORKSPACE_VARIABLE = "TFS_PROXY_WORKSPACE"

FORK_SECONDS: Final = 10.0
"""Time that supervisor and zygote wait for each other; only a machine that stands still takes longer."""

GO: Final = b"\x01"
"""Word of the supervisor to a forked process that has told its id.

Without it the process ends, so that none runs which the supervisor has given up.
"""


class ForkRequest(Struct, frozen=True):
    """A process to be forked, with its command line and environment as for exec.

    ``descriptors`` are the numbers that the descriptors which come along are to have in the process, the
    first of which is its output. Linux sends it ``orphaned_signal`` when the supervisor has died.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    descriptors: tuple[int, ...]
    orphaned_signal: int

    def to_bytes(self) -> bytes:
        """The line that is sent; surrogates in the environment stand for bytes that are not UTF-8."""
        return json.dumps(to_builtins(self)).encode() + b"\n"

    @classmethod
    def from_bytes(cls, text: bytes) -> "ForkRequest":
        """Read a line of `to_bytes`; raises ValueError for anything else."""
        return convert(json.loads(text), cls)


def folder_for_files() -> str | None:
    """Folder for files that a request needs; None, which is the system's, outside of a run."""
    return inherited_environment().get(WORKSPACE_VARIABLE)


def worker_workspace() -> Workspace:
    """Workspace of the run that started this worker; raises SettingsError outside of a run."""
    root = inherited_environment().get(WORKSPACE_VARIABLE)
    if not root:
        raise SettingsError(f"{WORKSPACE_VARIABLE} is not set: workers are started by `tfs-proxy serve`.")
    return Workspace(Path(root))
