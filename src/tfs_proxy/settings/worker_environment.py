"""Values that the supervisor passes on: the run's workspace, requests to the zygote, options of processes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

from msgspec import Struct, convert, to_builtins

from tfs_proxy.settings.settings import inherited_environment
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.layout import Workspace

Options = TypeVar("Options", bound=Struct)

WORKSPACE_VARIABLE = "TFS_PROXY_WORKSPACE"
METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""The folder in which prometheus_client keeps what a script measures, for the run to show it."""

FORK_SECONDS: Final = 10.0
"""Time that supervisor and zygote wait for each other; only a machine that stands still takes longer."""

GO: Final = b"\x01"
"""Word of the supervisor to a forked process that has told its id.

Without it the process ends, so that none runs which the supervisor has given up.
"""


class ForkRequest(Struct, frozen=True):
    """A process to be forked, with its command line and environment as for exec.

    ``descriptors`` are the numbers that the descriptors which come along are to have in the process, the
    first of which is its output. Linux sends it ``orphaned_signal`` when the supervisor has died. Surrogates
    in the environment stand for bytes that are not UTF-8.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    descriptors: tuple[int, ...]
    orphaned_signal: int


def folder_for_files() -> str | None:
    """Folder for files that a request needs; None, which is the system's, outside of a run."""
    return inherited_environment().get(WORKSPACE_VARIABLE)


def worker_workspace() -> Workspace:
    """Workspace of the run that started this worker; raises SettingsError outside of a run."""
    root = inherited_environment().get(WORKSPACE_VARIABLE)
    if not root:
        raise SettingsError(f"{WORKSPACE_VARIABLE} is not set: workers are started by `tfs-proxy serve`.")
    return Workspace(Path(root))


class TranslatorOptions(Struct, frozen=True):
    """Addresses and limits of the translator of the Open Inference Protocol."""

    socket: str
    """Path of the unix socket on which it takes gRPC."""

    control_socket: str
    """Path of the control API's unix socket."""

    gates: tuple[str, ...]
    """Links to the model servers' sockets."""

    message_bytes: int
    """Largest gRPC message."""

    answer_seconds: float
    """Limit for a call of a model server."""

    by_script: bool
    """True if the script answers inferences, which are refused over gRPC then."""

    decoded_bytes: int
    """Memory that the values of one request may take."""

    reflected: tuple[str, ...] = ()
    """Names of further services of which reflection tells."""

    listen: str | None = None
    """HOST:PORT on which it takes connections itself; None behind nginx."""


def written(options: Struct) -> str:
    """Write options as a word of a command line."""
    return json.dumps(to_builtins(options))


def read(kind: type[Options], word: str | bytes) -> Options:
    """Read a word of `written`; raises ValueError for anything else."""
    return convert(json.loads(word), kind)
