"""The level of a run's log, changed while it runs, and the runs on this machine."""

import json
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from http import HTTPStatus
from pathlib import Path

from msgspec import Struct

from tfs_proxy.observe.logs.config import LEVELS, LogConfig, current_level, set_level, wants_colour
from tfs_proxy.run.host.workspace import PREFIX
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import SettingsError, UpstreamError
from tfs_proxy.values.layout import Workspace
from tfs_proxy.wire.connect import connect_unix
from tfs_proxy.wire.http_client import ConnectionPool, Timeouts
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse
from tfs_proxy.wire.routes import LOG_LEVEL, NEW_LOG_LEVEL, Handlers

log = logging.getLogger(__name__)


class RunLog:
    """The level of the log of this process, which workers get with each answer of the control API.

    The run listens on ``port``; ``stages`` are the ports of its stages if it is a pipeline.
    """

    def __init__(self, port: int, stages: Sequence[int] = ()) -> None:
        self._port = port
        self._stages = stages

    def change(self, level: str) -> None:
        """Logs from this level on, in this process and in those that follow."""
        set_level("info")
        log.info("log level: %s", level)
        set_level(level)

    @property
    def routes(self) -> Handlers:
        return {LOG_LEVEL: self._show, NEW_LOG_LEVEL: self._change}

    async def _show(self, _: HttpRequest) -> HttpResponse:
        state = {"port": self._port, "level": current_level(), "stages": list(self._stages)}
        return HttpResponse(HTTPStatus.OK, json.dumps(state).encode())

    async def _change(self, request: HttpRequest, level: str) -> HttpResponse:
        if level not in LEVELS:
            return HttpResponse.error(HTTPStatus.NOT_FOUND, f"a level is one of {', '.join(LEVELS)}")
        self.change(level)
        return await self._show(request)


def log_config(settings: Settings, environ: Mapping[str, str], descriptor: int) -> LogConfig:
    coloured = wants_colour(descriptor, environ)
    return LogConfig(settings.log_format, coloured, descriptor)


SECONDS = 5.0


class FoundRun(Struct, frozen=True):
    """A run that answers at its control socket, its port, and those of its stages if it is a pipeline."""

    control_socket: Path
    port: int
    level: str
    stages: tuple[int, ...] = ()

    def set_level(self, level: str) -> None:
        """Raises UpstreamError if it does not answer."""
        _ask(self.control_socket, "PUT", NEW_LOG_LEVEL.path.format(level=level))


def found_runs(home: str | None) -> list[FoundRun]:
    """All runs with folders in ``home`` (None: the system's temporary folder), by port."""
    folders = Path(home or tempfile.gettempdir()).glob(f"{PREFIX}*")
    return sorted((run for folder in folders for run in _run_in(folder)), key=lambda run: run.port)


def chosen(runs: list[FoundRun], port: int | None) -> list[FoundRun]:
    """The run on ``port`` (None: the only one), with the stages behind it.

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
        state = json.loads(_ask(socket, "GET", LOG_LEVEL.path))
        yield FoundRun(socket, state["port"], state["level"], tuple(state["stages"]))
    except (UpstreamError, OSError, ValueError, KeyError, TypeError):
        return  # it has ended, or belongs to another user


def _ask(control_socket: Path, method: str, path: str) -> bytes:
    timeouts = Timeouts(SECONDS, connect_seconds=SECONDS)
    connect = connect_unix(control_socket)
    connections = ConnectionPool("localhost", 80, timeouts, idle=0, connect=connect, server="The run")
    with closing(connections):
        answer = connections.request(method, path, None, {"Connection": "close"})
    if answer.status != HTTPStatus.OK:
        raise ValueError(f"it answers {answer.status}")
    return answer.body
