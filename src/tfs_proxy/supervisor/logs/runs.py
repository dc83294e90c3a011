"""The runs on this machine whose folders are in one home: found by their control sockets."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from tfs_proxy.errors import SettingsError, UpstreamError
from tfs_proxy.layout import Workspace
from tfs_proxy.supervisor.host.workspace import PREFIX
from tfs_proxy.supervisor.logs.run_log import OK
from tfs_proxy.supervisor.logs.run_log import PATH as LOG_LEVEL
from tfs_proxy.wire.connect import connect_unix
from tfs_proxy.wire.connections import ConnectionPool, Timeouts

SECONDS = 5.0


class FoundRun(Struct, frozen=True):
    """A run that answers at its control socket, its port, and those of its stages if it is a pipeline."""

    control_socket: Path
    port: int
    level: str
    stages: tuple[int, ...] = ()

    def set_level(self, level: str) -> None:
        """Have it log from this level on. Raises UpstreamError if it does not answer."""
        _ask(self.control_socket, "PUT", f"{LOG_LEVEL}/{level}")


def found_runs(home: str | None) -> list[FoundRun]:
    """All runs with folders in ``home`` (None: the system's temporary folder), by port."""
    folders = Path(home or tempfile.gettempdir()).glob(f"{PREFIX}*")
    return sorted((run for folder in folders for run in _run_in(folder)), key=lambda run: run.port)


def chosen(runs: list[FoundRun], port: int | None) -> list[FoundRun]:
    """The run on ``port`` (None: the only one there is), with the stages behind it.

    Raises SettingsError if there is none, or several to choose from.
    """
    inner = {stage for run in runs for stage in run.stages}
    matching = [run for run in runs if (run.port not in inner if port is None else run.port == port)]
    if not runs:
        raise SettingsError("no run is found: TFS_PROXY_HOME must be that of the run, and the user the same.")
    if len(matching) != 1:
        ports = ", ".join(str(run.port) for run in runs if run.port not in inner)
        what = "several runs are found" if port is None else f"no run is found on port {port}"
        raise SettingsError(f"{what}: name one of {ports} with --port.")
    return matching + [run for run in runs if run.port in matching[0].stages]


def _run_in(folder: Path) -> Iterator[FoundRun]:
    socket = Workspace(folder).control_socket
    try:
        state = json.loads(_ask(socket, "GET", LOG_LEVEL))
        yield FoundRun(socket, state["port"], state["level"], tuple(state["stages"]))
    except (UpstreamError, OSError, ValueError, KeyError, TypeError):
        return  # it has ended, or belongs to another user


def _ask(control_socket: Path, method: str, path: str) -> bytes:
    timeouts = Timeouts(SECONDS, connect_seconds=SECONDS)
    connect = connect_unix(control_socket)
    connections = ConnectionPool("localhost", 80, timeouts, idle=0, connect=connect, server="The run")
    with closing(connections):
        answer = connections.request(method, path, None, {"Connection": "close"})
    if answer.status != OK:
        raise ValueError(f"it answers {answer.status}")
    return answer.body
