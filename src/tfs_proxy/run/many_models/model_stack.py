"""The stack of one loaded model: its folder, socket, processes and gates; `model_stacks` has all.

A model's folder has links to what the run has once: counts of requests, the log, nginx. Gates are links that
exist while a model is ready, by which nginx finds its server.
"""

import asyncio
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from tfs_proxy.observe.logs.config import LogConfig
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.observe.process_usage import memory_of_tree
from tfs_proxy.observe.request_counts import KnownModels
from tfs_proxy.observe.shared_files import under_way
from tfs_proxy.observe.stage_table import StageTables
from tfs_proxy.run.grpc_routes import GrpcRoutes
from tfs_proxy.run.host.sockets import unbound
from tfs_proxy.run.host.workspace import make_workspace_within
from tfs_proxy.run.many_models.model_servers import SharedModelServers
from tfs_proxy.run.many_models.shared_parts import CommonModel
from tfs_proxy.run.metrics import RunMetrics
from tfs_proxy.run.nginx.many_models import (
    ANY,
    COMMON_SOCKET,
    COMMON_WORKSPACES,
    FAST,
    GATES,
    LOADED,
    SERVED,
    WEB_SOCKET,
)
from tfs_proxy.run.opening import ServeRequest
from tfs_proxy.run.process import ChildProcess, Spawn
from tfs_proxy.run.readiness import StackState
from tfs_proxy.run.run_loop import LAST_STEPS_SECONDS
from tfs_proxy.run.stack import Stack, StackHost
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import Instance
from tfs_proxy.values.layout import Workspace
from tfs_proxy.wire.http_server import BACKLOG


class HttpGates:
    """All gates of a run, below its workspace's ``root``.

    TF Serving's API may know a model by other names than it is loaded under, the v2 protocol by all of them.
    """

    def __init__(self, root: Path) -> None:
        self._gates, self._fast, self.workspaces = root / GATES, root / FAST, root / COMMON_WORKSPACES

    def make_folders(self) -> None:
        """Call it before the first model comes."""
        for folder in (self._gates, self._fast, self.workspaces):
            folder.mkdir()

    def open(self, name: str, served_names: Collection[str], web_socket: Path) -> None:
        """Sends requests for the model to ``web_socket`` from now on."""
        for gate in self._of(name, served_names):
            _link(gate, web_socket)

    def _of(self, name: str, served_names: Collection[str]) -> Iterator[Path]:
        """The gates of a model; those that nginx checks come last."""
        for each in {name, *served_names}:
            yield self._gates / f"{each}.{ANY}"
        for served_name in served_names:
            yield self._gates / f"{served_name}.{SERVED}"
        yield self._gates / f"{name}.{LOADED}"

    def open_fast(self, name: str) -> None:
        """Lets requests that need no conversion go directly to a model server, which has this name, too."""
        (self._fast / name).touch()

    def share(self, name: str, served_names: Collection[str], workspace: Path) -> None:
        """Lets the common workers find the model's ``workspace`` by all of its names."""
        for each in {name, *served_names}:
            _link(self.workspaces / each, workspace)

    def close(self, name: str, served_names: Collection[str]) -> None:
        (self._fast / name).unlink(missing_ok=True)
        for gate in reversed(tuple(self._of(name, served_names))):
            gate.unlink(missing_ok=True)
        for each in {name, *served_names}:
            (self.workspaces / each).unlink(missing_ok=True)


def _link(link: Path, target: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)


if TYPE_CHECKING:
    from tfs_proxy.run.many_models.model_stacks import ModelStacks


class RunFacts(Struct, frozen=True):
    """Settings, model server, environment, folder, clean-up and log that all models of a run share.

    ``port`` is the one that clients know. ``servers`` are those of all models. ``spawn_workers`` is how
    gunicorn is started.
    """

    settings: Settings
    model_server: str
    environ: Mapping[str, str]
    workspace: Workspace
    log: LogConfig
    port: int
    gates: HttpGates
    grpc_routes: GrpcRoutes
    spawn_workers: Spawn
    servers: SharedModelServers


class ModelStack:
    """The processes of the model ``name``, in a new folder ``home``; its gates are open while it is ready."""

    def __init__(
        self, name: str, url: str, run: RunFacts, home: Path, owner: "ModelStacks", bytes_on_disk: int
    ) -> None:
        self.name, self.url, self.home = name, url, home
        self.bytes_on_disk = bytes_on_disk
        self.models: Mapping[str, Collection[int]] = {}
        self._run, self._owner = run, owner
        self._workspace = Workspace(home)
        self._listener = unbound()
        host = StackHost(
            self._workspace,
            run.log,
            spawn_workers=run.spawn_workers,
            servers=run.servers,
        )
        request = ServeRequest(url, run.model_server, run.environ)
        settings = run.settings.for_one_of_many(name)
        self._stack = Stack(settings, request, host, of=name)
        self._metrics = RunMetrics(lambda: self._stack, self._workspace.journal)
        self._common: CommonModel | None = None
        self._stages: StageTables | None = None
        self._routed: Collection[str] = ()
        self._is_shut = False
        self._instances: tuple[Instance, ...] = ()
        self._stopped = False

    @property
    def names(self) -> frozenset[str]:
        """All names that it alone may have: its own, and its models'."""
        return frozenset({self.name, *self.models})

    @property
    def has_workers(self) -> bool:
        """True if it has workers of its own, as far as its archive is open."""
        return self._stack.has_workers

    @property
    def is_ready(self) -> bool:
        return self._stack.readiness.state is StackState.READY

    @property
    def is_loading(self) -> bool:
        return self._stack.readiness.state is StackState.STARTING

    def children(self) -> Sequence[ChildProcess]:
        return self._stack.children.in_start_order()

    @property
    def in_use(self) -> bool:
        """True if a worker is answering a request, or a model server a call of the gRPC router."""
        if self._common is not None and self._common.in_use():
            return True
        alive = self._stack.readiness.heartbeats.alive
        return self._run.grpc_routes.in_use(self._routed) or any(
            under_way(self._workspace.journal / str(pid)) for pid in alive
        )

    @property
    def memory_bytes(self) -> int:
        """Memory of its processes, and what it has added to the common model servers."""
        pids = [child.pid for child in self._stack.children.in_start_order()]
        own_bytes = sum(memory_of_tree(pid) for pid in pids if pid)
        return own_bytes + self._run.servers.memory_of(self.models)

    def measure(self) -> Iterator[MeasuredMetric]:
        """Metrics of its processes and workers, and the stages of its requests."""
        yield from self._metrics.measure_stack(self._stack.settings.gunicorn_threads)
        if self._stages is not None:
            yield from self._stages.measure()

    async def start(self) -> None:
        """Opens the archive, starts its processes, and then opens the gates. Raises StopServing."""
        await self._run.servers.begun()
        async with self._owner.turn():
            await self._load()
        self._stack.begin_serving()
        self._open_gates()
        self.follow_model_servers()
        self._owner.ready(self)

    def follow_model_servers(self) -> None:
        """Sends calls to those model servers that have its models: one that is being restarted has none."""
        if not self.is_ready or self._is_shut:
            return
        loaded = self._run.servers.loaded()
        sockets = [Path(each.grpc_socket) for each in self._instances if each.index in loaded]
        self._run.grpc_routes.route(self._routed, sockets)

    def lose_model_server(self, index: int) -> None:
        """Makes its workers' requests wait until the ended common model server has the models again."""
        if self.is_ready and self.has_workers and self.models:
            self._stack.readiness.lose(index)

    async def watch(self) -> None:
        """Runs until a process gives up. Raises StopServing then."""
        await self._stack.watch_forever()

    def shut(self) -> None:
        self._is_shut = True
        self._run.grpc_routes.forget(self._routed)
        if not self.is_loading:
            self._run.gates.close(self.name, self.models)

    async def stop(self) -> None:
        """Closes gates, lets requests end, ends the processes, and removes the folder; idempotent."""
        if self._stopped:
            return
        self._stopped = True
        self.shut()
        is_loading = self.is_loading
        if is_loading:
            self._stack.abandon_loading()
        self._stack.readiness.begin_stopping()
        try:
            # A load has no requests yet.
            await self._stop_processes(LAST_STEPS_SECONDS if is_loading else self._owner.seconds_to_stop())
            self._owner.stopped(self)
        finally:
            self._stack.close()
            self._listener.close()
            self._owner.gone(self)
            await asyncio.to_thread(shutil.rmtree, self._workspace.root, ignore_errors=True)

    async def _load(self) -> None:
        make_workspace_within(self._run.workspace, self._workspace.root)
        prepared = await self._stack.open_archive()
        self.models = {model.name: model.versions for model in prepared.models}
        self._owner.opened(self)
        deployment = await self._stack.expect(prepared, self._run.port)
        known = KnownModels(deployment.default_model, deployment.models)
        self._stages = StageTables(self._workspace.stages, known)
        if self._stack.has_workers:
            await self._open_sockets()
        else:
            self._common = CommonModel(self._workspace, deployment)
        self._instances, self._routed = deployment.instances, tuple(deployment.models)
        await self._stack.start_in_time((self._listener,))

    def _open_gates(self) -> None:
        gates = self._run.gates
        if self._common is None:
            gates.open(self.name, self.models, self._workspace.root / WEB_SOCKET)
            return
        self._common.publish()
        gates.share(self.name, self.models, self._workspace.root)
        gates.open(self.name, self.models, self._run.workspace.root / COMMON_SOCKET)
        if self._common.is_fast(self.name):
            gates.open_fast(self.name)

    async def _stop_processes(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        await asyncio.gather(
            *([] if self._common is None else [self._common.withdraw(seconds)]),
            self._stack.children.stop_workers(seconds),
            self._run.grpc_routes.until_idle(self._routed, seconds),
        )
        await self._stack.stop_model_servers(max(deadline - time.monotonic(), LAST_STEPS_SECONDS))

    async def _open_sockets(self) -> None:
        self._listener.bind(str(self._workspace.root / WEB_SOCKET))
        self._listener.listen(BACKLOG)
        await self._stack.open_control_api()
