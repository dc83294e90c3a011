"""The serving stack of one loaded model: its folder, socket, processes and gates; `model_stacks` has all.

What a run has once (counts of requests, the log, nginx) the folder of a model leads to by links.
"""

import asyncio
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.capture.files import Counts, check_folder
from tfs_proxy.deployment import Instance
from tfs_proxy.layout import Workspace
from tfs_proxy.multimodel.gates import HttpGates
from tfs_proxy.multimodel.model_servers import SharedModelServers
from tfs_proxy.multimodel.shared_mode import CommonModel
from tfs_proxy.observe import catalogue
from tfs_proxy.observe.fixed_file import under_way
from tfs_proxy.observe.logs.config import LogConfig
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.observe.process_usage import memory_of_tree
from tfs_proxy.observe.request_counts import KnownModels
from tfs_proxy.observe.stage_table import StageTables
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor.control_api import ControlApi, captured_records
from tfs_proxy.supervisor.gpus import Placement
from tfs_proxy.supervisor.grpc_routes import GrpcRoutes
from tfs_proxy.supervisor.health.readiness import Phase
from tfs_proxy.supervisor.host.load_priority import LoadPriority
from tfs_proxy.supervisor.host.sockets import unbound
from tfs_proxy.supervisor.host.watchdog import Watchdog
from tfs_proxy.supervisor.host.workspace import make_workspace_within
from tfs_proxy.supervisor.metrics import RunMetrics
from tfs_proxy.supervisor.nginx.many_models import COMMON_SOCKET, WEB_SOCKET
from tfs_proxy.supervisor.opening import ServeRequest
from tfs_proxy.supervisor.process import ChildProcess, Spawn
from tfs_proxy.supervisor.run_loop import LAST_STEPS_SECONDS
from tfs_proxy.supervisor.stack import ServingStack, StackHost
from tfs_proxy.wire.http_server import BACKLOG

if TYPE_CHECKING:
    from tfs_proxy.multimodel.model_stacks import ModelStacks


class RunFacts(Struct, frozen=True):
    """Settings, model server, environment, folder, clean-up and log that all models of a run share.

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


class ModelStack:
    """The processes of the model ``name``, in a new folder ``home``; its gates are open while it is ready."""

    def __init__(
        self, name: str, url: str, run: RunFacts, home: Path, owner: "ModelStacks", bytes_on_disk: int
    ) -> None:
        self.name, self.url, self.home = name, url, home
        self.bytes_on_disk = bytes_on_disk
        self.placements: tuple[Placement, ...] = ()
        self.models: Mapping[str, Collection[int]] = {}
        self._run, self._owner = run, owner
        self._workspace = Workspace(home)
        self._listener = unbound()
        host = StackHost(
            self._workspace,
            run.watchdog,
            run.log,
            spawn_workers=run.spawn_workers,
            priority=run.priority,
            servers=run.servers,
        )
        request = ServeRequest(url, run.model_server, run.environ)
        settings = run.settings.for_one_of_many(name, None)
        self._stack = ServingStack(settings, request, host, (self._listener,), of=name)
        self._metrics = RunMetrics(self._stack.readiness, self._stack.children, self._workspace.journal)
        self._control_api = ControlApi(self._stack.readiness, [captured_records(run.captured)])
        self._common: CommonModel | None = None
        self._stages: StageTables | None = None
        self._led: Collection[str] = ()
        self._is_shut = False
        self._instances: tuple[Instance, ...] = ()
        self._stopped = False

    @property
    def names(self) -> frozenset[str]:
        """All names that nobody else may have: what it is loaded as, and what its models are called."""
        return frozenset({self.name, *self.models})

    @property
    def has_workers(self) -> bool:
        """Whether it has workers of its own, as far as its archive is open."""
        return self._stack.has_workers

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
        """Whether a worker answers a request now, or a model server a call of the gRPC router."""
        if self._common is not None and self._common.in_use():
            return True
        alive = self._stack.readiness.heartbeats.alive
        return self._run.grpc_routes.in_use(self._led) or any(
            under_way(self._workspace.journal / str(pid)) for pid in alive
        )

    @property
    def memory_bytes(self) -> int:
        """The memory that its processes take, and what it has added to the common model servers."""
        pids = [child.pid for child in self._stack.children.in_start_order()]
        own_bytes = sum(memory_of_tree(pid) for pid in pids if pid)
        servers = self._run.servers
        return own_bytes + (0 if servers is None else servers.memory_of(self.models))

    def measure(self) -> Iterator[MeasuredMetric]:
        """What its processes, workers and models are like now, and the stages of its requests."""
        threads = self._stack.settings.gunicorn_threads
        yield from self._metrics.measure_stack(threads, has_model_servers=self._run.servers is None)
        if self.placements:
            yield MeasuredMetric(catalogue.MODEL_GPU_SHARE, self._gpu_shares())
        yield from self.measure_stages()

    def measure_stages(self) -> Iterator[MeasuredMetric]:
        """Only the stages of its requests."""
        if self._stages is not None:
            yield from self._stages.measure()

    def _gpu_shares(self) -> Mapping[tuple[str, ...], float]:
        """What its model servers together may take of each GPU."""
        shares: defaultdict[tuple[str, ...], float] = defaultdict(float)
        for placement in self.placements:
            shares[self.name, placement.uuid] += (
                1.0 if placement.memory_share is None else placement.memory_share
            )
        return shares

    async def start(self) -> None:
        """Open the archive, start its processes, and open the gates once they answer; raises StopServing."""
        if self._run.servers is not None:
            await self._run.servers.begun()
        async with self._owner.turn():
            await self._load()
        self._stack.begin_serving()
        self._control_api.release()
        self._open_gates()
        self.follow_model_servers()
        self._owner.ready(self)

    def follow_model_servers(self) -> None:
        """Let calls reach the model servers that have its models: one that is being restarted has none."""
        if not self.is_ready or self._is_shut:
            return
        servers = self._run.servers
        loaded = self._stack.readiness.loaded() if servers is None else servers.loaded()
        sockets = [Path(each.grpc_socket) for each in self._instances if each.index in loaded]
        self._run.grpc_routes.lead(self._led, sockets)

    def lose_model_server(self, index: int) -> None:
        """A common model server has ended: until it has the models again, requests of its workers wait."""
        if self.is_ready and self.has_workers and self.models:
            self._stack.readiness.lose(index)

    async def watch(self) -> None:
        """Last until a process gives up; raises StopServing then."""
        await self._stack.watch_forever()

    def shut(self) -> None:
        """Close the gates for good; idempotent."""
        self._is_shut = True
        self._run.grpc_routes.forget(self._led)
        if not self.is_loading:
            self._run.gates.close(self.name, self.models)

    async def stop(self) -> None:
        """Shut, let requests end, end the processes, and remove the folder; idempotent."""
        if self._stopped:
            return
        self._stopped = True
        self.shut()
        is_loading = self.is_loading
        if is_loading:
            self._stack.abandon_loading()
        self._stack.readiness.phase = Phase.STOPPING
        try:
            # Who is loading has no requests in flight.
            await self._stop_processes(LAST_STEPS_SECONDS if is_loading else self._owner.seconds_to_stop())
            self._owner.stopped(self)
        finally:
            self._stack.close()
            self._control_api.close()
            self._owner.gone(self)
            await asyncio.to_thread(shutil.rmtree, self._workspace.root, ignore_errors=True)

    async def _load(self) -> None:
        await self._choose_place()
        make_workspace_within(self._run.workspace, self._workspace.root)
        prepared = await self._stack.open_archive()
        self.models = {model.name: model.versions for model in prepared.models}
        self._owner.opened(self)
        planned = await self._stack.expect(prepared, self._run.port)
        deployment = planned.deployment
        if deployment.capture is not None:
            check_folder(deployment.capture)
        known = KnownModels(deployment.default_model, deployment.models)
        self._stages = StageTables(self._workspace.stages, known)
        if self._stack.has_workers:
            await self._open_sockets()
            self._control_api.deployment = deployment
        else:
            self._common = CommonModel(self._workspace, deployment)
        self._instances, self._led = deployment.instances, tuple(deployment.models)
        if self._run.servers is None:
            self._stack.children.each_tick = self.follow_model_servers
        await self._stack.start_in_time(planned, prepared)

    async def _choose_place(self) -> None:
        """Choose a GPU and ports for model servers of its own."""
        if self._run.servers is not None:
            return
        self.placements = await self._owner.place(self)
        stack = self._stack
        stack.settings = stack.settings.with_values(safe_port_range=self._owner.ports_of(self))
        stack.request = replace(stack.request, placements=self.placements)

    def _open_gates(self) -> None:
        gates = self._run.gates
        if self._common is None:
            gates.open(self.name, self.models, self._workspace.root / WEB_SOCKET)
            return
        self._common.publish()
        gates.share(self.name, self.models, self._workspace.root)
        gates.open(self.name, self.models, self._run.common_socket)
        if self._common.is_fast(self.name):
            gates.open_fast(self.name)

    async def _stop_processes(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        await asyncio.gather(
            *([] if self._common is None else [self._common.withdraw(seconds)]),
            self._stack.stop_workers(seconds),
            self._run.grpc_routes.until_idle(self._led, seconds),
        )
        await self._stack.stop_model_servers(max(deadline - time.monotonic(), LAST_STEPS_SECONDS))

    async def _open_sockets(self) -> None:
        self._listener.bind(str(self._workspace.root / WEB_SOCKET))
        self._listener.listen(BACKLOG)
        await self._control_api.open(self._workspace.control_socket)
