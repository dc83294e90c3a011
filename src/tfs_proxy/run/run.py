"""A run: its front and its stacks, from the open port to the exit status; the one loop and the one drain.

`run.archive_stacks` has the stacks of one archive, `run.many_models.serve` those of models that come and go,
`run.pipeline.row` the stages of a row of archives.
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import ClassVar

from msgspec import Struct

from tfs_proxy.run.control_api import ControlApi
from tfs_proxy.run.front import Front
from tfs_proxy.run.heartbeats import WorkerCounts
from tfs_proxy.run.host.limits import Limits
from tfs_proxy.run.host.processes import Orphans
from tfs_proxy.run.host.sockets import Listeners, connections
from tfs_proxy.run.host.waiting import together
from tfs_proxy.run.logs import RunRecords
from tfs_proxy.run.nginx.many_models import MultiModelRoutes
from tfs_proxy.run.process import ChildProcess, Deaths
from tfs_proxy.run.readiness import Readiness, StackState
from tfs_proxy.run.run_loop import LAST_STEPS_SECONDS, RunLoop
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.layout import Workspace

log = logging.getLogger(__name__)


Versions = Mapping[str, Collection[int]]


class Stacks(ABC):
    """The stacks of a run: what it serves, behind its front, and the run's own HTTP."""

    kind: ClassVar[int]
    """Column of `wire.routes.Route.answered_by`."""

    control_api: ControlApi

    @property
    @abstractmethod
    def readiness(self) -> Readiness:
        """Readiness of the run: that of the stack which serves, or of what many stacks share."""

    @property
    @abstractmethod
    def deployment(self) -> Deployment | None:
        """Deployment of the same; None until that is known."""

    def ready_versions(self) -> Versions:
        """Versions that serve now, by model; none of a row, whose stages tell that themselves."""
        return {}

    def prepare(self) -> MultiModelRoutes | None:
        """Makes what has to be there before the front opens; returns nginx's routes if models change."""
        return None

    async def answer_at_front(self) -> None:  # noqa: B027 - nginx alone is there for many models
        """Answers on the front's own sockets, as long as no worker does."""

    @abstractmethod
    async def start(self) -> str:
        """Returns the line that says so once requests can be answered. Raises StopServing."""

    @abstractmethod
    async def watch(self) -> None:
        """Runs as long as requests can be answered. Raises StopServing as soon as a process gives up."""

    def look(self) -> bool:
        """Does what is due at each look at the processes; True if the next one should come soon."""
        return False

    def abandon_loading(self) -> None:  # noqa: B027 - those of many models have none yet
        """Kills what is still loading."""

    def begin_draining(self) -> None:  # noqa: B027 - those of one archive load nothing by a request
        """Loads nothing any more."""

    def in_flight(self) -> int:
        """Number of requests that are being answered, where nginx does not know."""
        return 0

    @abstractmethod
    async def stop(self, deadline: float) -> None:
        """Ends all stacks, whose requests the front has drained, by ``deadline`` of `time.monotonic`."""

    @abstractmethod
    def all_children(self) -> Iterator[ChildProcess]:
        """All their processes."""


class RunHost(Struct, frozen=True):
    """Parts that a run has once, for its stacks."""

    workspace: Workspace
    """Folder of the run."""

    front: Front
    """Listeners, nginx and the translator."""

    records: RunRecords
    """Log, and counts of requests."""

    deaths: Deaths
    """Counts of processes that have died, and the limits that they have met."""

    counts: WorkerCounts
    """Counts over the workers of all stacks, former ones among them."""


class Run:
    """Serves what ``make_stacks`` makes, on ``listeners``, until it is stopped or a process gives up."""

    def __init__(
        self,
        settings: Settings,
        listeners: Listeners,
        environ: Mapping[str, str],
        workspace: Workspace,
        make_stacks: Callable[[RunHost], Stacks],
    ) -> None:
        self._settings = settings
        self._workspace = workspace
        deaths = Deaths(Limits(settings.machine.resources))
        self._records = RunRecords(settings, environ, workspace)
        self._front = Front(settings, workspace, listeners, environ, deaths, self._look)
        counts = WorkerCounts(stages=self._records.stages)
        host = RunHost(workspace, self._front, self._records, deaths, counts)
        self._stacks = make_stacks(host)
        self._orphans = Orphans()
        self._run_loop = RunLoop(settings.stop_seconds)
        workspace.url.write_text(self._front.url)

    async def serve(self) -> int:
        """Serves until a stop signal; returns the exit status then. Raises StopServing."""
        return await self._run_loop.serve_and_drain(self._start_and_watch(), self._drain)

    async def _start_and_watch(self) -> None:
        self._open_capture()
        many_models = self._stacks.prepare()
        # From here on every request gets an answer.
        await self._stacks.control_api.open(self._workspace.control_socket, self._workspace.client_socket)
        self._front.open(self._stacks.kind, many_models)
        await self._stacks.answer_at_front()

        async def serve() -> None:
            ready_line = await self._stacks.start()
            self._stacks.control_api.release()
            log.info("%s", ready_line)
            await self._stacks.watch()

        await self._front.watch_during(together(serve(), self._front.follow_files()))

    def _open_capture(self) -> None:
        """Makes the folder of data capture. Raises SettingsError if it can't be written."""
        folder = self._settings.capture_folder
        percent = self._settings.capture_percent
        if folder is None:
            return
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            TemporaryFile(dir=folder).close()
        except OSError as error:
            raise SettingsError(f"TFS_PROXY_CAPTURE={folder} can't be used: {error.strerror}.") from error
        # People's data are kept: whoever runs this should know.
        log.info("capturing %g %% of the requests to /invocations into %s", percent, folder)

    def _look(self) -> bool:
        """Handles changes; True if the next look should come soon."""
        self._orphans.collect()
        self._front.deaths.limits.look()
        is_busy = self._records.read()
        return self._stacks.look() or is_busy or self._stacks.readiness.state is not StackState.READY

    async def _drain(self, stop_requested: bool) -> None:
        """Stops accepting, lets requests finish, then ends the rest in reverse order; bounded in time."""
        starting = self._stacks.readiness.state is StackState.STARTING
        deadline = time.monotonic() + (LAST_STEPS_SECONDS if starting else self._settings.stop_seconds)
        self._stacks.readiness.begin_stopping()
        public = self._front.public()
        ports = [listener.getsockname()[1] for listener in public]
        if stop_requested:
            await self._run_loop.accept_pending(public, deadline)
        self._front.close_public()
        if starting:
            self._stacks.abandon_loading()

        def left() -> int:
            """Number of requests in flight: connections that nginx has kept, else what the stacks know of."""
            return connections(ports) if self._front.behind_nginx else self._stacks.in_flight()

        async def stop(deadline: float) -> None:
            self._stacks.begin_draining()  # requests that wait for a load would keep nginx
            await self._front.stop(deadline)
            await self._stacks.stop(deadline)

        children = chain(self._front.in_start_order(), self._stacks.all_children())
        reading = asyncio.create_task(self._records.keep_reading())
        try:
            await self._run_loop.stop(stop, children, deadline, lambda: 0 if starting else left())
        finally:
            reading.cancel()
        self._front.close()
        self._stacks.control_api.close()
        self._records.close()
