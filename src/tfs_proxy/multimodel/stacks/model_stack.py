"""The serving stack of one loaded model: its folder, its socket, its processes, its gate; `stacks` has all.

What a run has once (counts of requests, the log, nginx) the folder of a model leads to by links.
"""

import asyncio
import shutil
import socket
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from tfs_proxy.capture.files import check_folder
from tfs_proxy.layout import Workspace
from tfs_proxy.multimodel.capacity.placement import Placement
from tfs_proxy.observe.journal_notes import under_way
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.observe.model_counts import KnownModels
from tfs_proxy.observe.process_usage import memory_of_tree
from tfs_proxy.observe.stage_table import StageTables
from tfs_proxy.setting_values import PortRange
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor.control_api import ControlApi
from tfs_proxy.supervisor.host.watchdog import Watchdog
from tfs_proxy.supervisor.metrics import RunMetrics
from tfs_proxy.supervisor.opening import ServeRequest
from tfs_proxy.supervisor.process import ChildProcess, Spawn
from tfs_proxy.supervisor.readiness import Phase
from tfs_proxy.supervisor.scraping.worker_threads import WorkerThreads
from tfs_proxy.supervisor.stack import ServingStack, StackHost
from tfs_proxy.wire.http_server import BACKLOG

LAST_STEPS_SECONDS: Final = 3.0
WEB_SOCKET: Final = "web.sock"


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What all models of a run share: settings, model server, environment, folder, clean-up and log.

    ``port`` is the one that clients know, ``spawn_workers`` how gunicorn is started.
    """

    settings: Settings
    model_server: str
    environ: Mapping[str, str]
    workspace: Workspace
    watchdog: Watchdog
    log_descriptor: int
    port: int
    spawn_workers: Spawn


class StackOwner(Protocol):
    """Who has all stacks, and learns what becomes of each."""

    def turn(self) -> AbstractAsyncContextManager[object]:
        """Wait for a turn to load: not all models may do so at once."""

    async def place(self, stack: "ModelStack") -> Placement | None:
        """The GPU for it; raises NotEnoughResources if none has room."""

    def ports_of(self, stack: "ModelStack") -> PortRange | None:
        """The ports for its model servers, None for any; raises NotEnoughResources if none are left."""

    def opened(self, stack: "ModelStack") -> None:
        """Its archive is open: its versions are known."""

    def ready(self, stack: "ModelStack") -> None:
        """It serves, and its memory can be measured."""

    def seconds_to_stop(self) -> float:
        """How long its requests may take to end."""

    def stopped(self, stack: "ModelStack") -> None:
        """Its processes have ended, and it can be measured for the last time."""

    def gone(self, stack: "ModelStack") -> None:
        """Nothing of it is left."""


class ModelStack:
    """The processes of the model ``name``, in a new folder ``home``; ``gate`` is there while it is ready."""

    def __init__(
        self,
        name: str,
        url: str,
        run: RunFacts,
        home: Path,
        gate: Path,
        owner: StackOwner,
        bytes_on_disk: int,
    ) -> None:
        self.name, self.url = name, url
        self.bytes_on_disk = bytes_on_disk
        self.placement: Placement | None = None
        self._run, self._gate, self._owner = run, gate, owner
        self._workspace = Workspace(home)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._stack = self._serving_stack()
        self._metrics = self._run_metrics()
        self._control_api = ControlApi(self._stack.readiness)
        self._stages: StageTables | None = None
        self._stopped = False

    @property
    def versions(self) -> Collection[int]:
        """The versions of the model of its name; none until the archive is open."""
        deployment = self._control_api.deployment
        return () if deployment is None else deployment.models.get(self.name, ())

    @property
    def is_ready(self) -> bool:
        """Whether it serves."""
        return self._stack.readiness.phase is Phase.SERVING

    @property
    def is_loading(self) -> bool:
        """Whether it is on its way."""
        return self._stack.readiness.phase is Phase.STARTING

    def children(self) -> Sequence[ChildProcess]:
        """Its processes."""
        return self._stack.children.in_start_order()

    @property
    def in_use(self) -> bool:
        """Whether a worker answers a request now."""
        alive = self._stack.readiness.heartbeats.alive
        return any(under_way(self._workspace.journal / pid.decode()) for pid in alive if pid.isdigit())

    @property
    def memory_bytes(self) -> int:
        """The memory that its processes take."""
        pids = [child.pid for child in self._stack.children.in_start_order()]
        return sum(memory_of_tree(pid) for pid in pids if pid)

    def measure(self) -> Iterator[MeasuredMetric]:
        """What its processes, workers and models are like now, and the stages of its requests."""
        stack, journal = self._stack, self._workspace.journal
        yield from self._metrics.measure_stack()
        yield from WorkerThreads(
            stack.readiness.heartbeats, journal, stack.settings.gunicorn_threads
        ).measure()
        if self._stages is not None:
            yield from self._stages.measure()

    async def start(self) -> None:
        """Open the archive, start its processes, and open the gate once they answer; raises StopServing."""
        async with self._owner.turn():
            await self._load()
        self._stack.begin_serving()
        self._control_api.release()
        self._gate.symlink_to(self._workspace.root / WEB_SOCKET)
        self._owner.ready(self)

    async def watch(self) -> None:
        """Last until a process gives up; raises StopServing then."""
        await self._stack.watch_forever()

    async def stop(self) -> None:
        """Close the gate, let requests end, end the processes, and remove the folder; idempotent."""
        if self._stopped:
            return
        self._stopped = True
        self._gate.unlink(missing_ok=True)
        is_loading = self._stack.readiness.phase is Phase.STARTING
        if is_loading:
            self._stack.abandon_loading()
        self._stack.readiness.phase = Phase.STOPPING
        try:
            # Who is loading has no requests in flight.
            await self._stop_processes(LAST_STEPS_SECONDS if is_loading else self._owner.seconds_to_stop())
            self._owner.stopped(self)
        finally:
            self._stack.close()
            self._stack.readiness.heartbeats.close()
            self._control_api.close()
            self._owner.gone(self)
            await asyncio.to_thread(shutil.rmtree, self._workspace.root, ignore_errors=True)

    def _serving_stack(self, ports: PortRange | None = None) -> ServingStack:
        run = self._run
        settings, environ = run.settings.for_one_of_many(self.name, ports), run.environ
        if self.placement is not None:
            settings = replace(settings, extra_args=(*settings.extra_args, *self.placement.arguments))
            environ = {**environ, **self.placement.environment}
        host = StackHost(self._workspace, run.watchdog, run.log_descriptor, run.spawn_workers)
        request = ServeRequest(self.url, run.model_server, environ)
        return ServingStack(settings, request, host, (self._listener,), of=self.name)

    def _run_metrics(self) -> RunMetrics:
        return RunMetrics(self._stack.readiness, self._stack.children, self._workspace.journal)

    async def _load(self) -> None:
        self.placement = await self._owner.place(self)
        self._stack = self._serving_stack(self._owner.ports_of(self))
        self._metrics = self._run_metrics()
        self._control_api.readiness = self._stack.readiness
        self._make_folder()
        await self._open_sockets()
        prepared = await self._stack.open_archive()
        planned = await self._stack.expect(prepared, self._run.port)
        deployment = planned.deployment
        if deployment.capture is not None:
            check_folder(deployment.capture)
        self._control_api.deployment = deployment
        known = KnownModels(deployment.default_model, deployment.models)
        self._stages = StageTables(self._workspace.stages, known)
        self._owner.opened(self)
        await self._stack.start_in_time(planned, prepared)

    async def _stop_processes(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        await self._stack.stop_workers(deadline - time.monotonic())
        await self._stack.stop_model_servers(max(deadline - time.monotonic(), LAST_STEPS_SECONDS))

    def _make_folder(self) -> None:
        of_run, own = self._run.workspace, self._workspace
        own.root.mkdir(parents=True)
        for path in (
            of_run.requests,
            of_run.access,
            of_run.logging,
            of_run.memory_ledger,
            of_run.capture_counts,
            of_run.traces_warning,
            of_run.nginx,
        ):
            (own.root / path.name).symlink_to(path)

    async def _open_sockets(self) -> None:
        self._listener.bind(str(self._workspace.root / WEB_SOCKET))
        self._listener.listen(BACKLOG)
        await self._control_api.open(self._workspace.control_socket)
        await self._stack.readiness.heartbeats.listen(self._workspace.heartbeat_socket)
