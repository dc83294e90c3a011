"""The processes of one loaded model, its folder, and the gates by which nginx finds it.

A model's folder has links to what the run has once: counts of requests, the log, nginx. Gates are links that
exist while a model is ready.
"""

import asyncio
import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from tfs_proxy.observe.begun_requests import under_way
from tfs_proxy.observe.logs.entry import LogConfig
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.observe.process_usage import memory_of_tree
from tfs_proxy.run.heartbeats import WorkerCounts
from tfs_proxy.run.host.sockets import unbound
from tfs_proxy.run.host.workspace import is_locked, is_path_locked, make_workspace_within
from tfs_proxy.run.many_models.admission import Turns
from tfs_proxy.run.many_models.shared_servers import SharedServers
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
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.layout import Workspace
from tfs_proxy.wire.http_server import BACKLOG
from tfs_proxy.wire.media_types import JSON

LOCK_PAUSE_SECONDS: Final = 0.01


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

    def lead_to(self, web_socket: Path, name: str, served_names: Collection[str]) -> None:
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

    def lead_past_workers(self, name: str) -> None:
        """Lets requests that need no conversion go directly to a model server, which has this name, too."""
        (self._fast / name).touch()

    def share(self, workspace: Path, name: str, served_names: Collection[str]) -> None:
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


class RunFacts(Struct, frozen=True):
    """Settings, model server, environment, folder, log and workers' counts that all models of a run share.

    ``port`` is the one that clients know. ``servers`` are those of all models, ``spawn_workers`` is how
    gunicorn is started; a model loads in one of the ``turns``.
    """

    settings: Settings
    model_server: str
    environ: Mapping[str, str]
    workspace: Workspace
    log: LogConfig
    counts: WorkerCounts
    port: int
    gates: HttpGates
    spawn_workers: Spawn
    servers: SharedServers
    turns: Turns


class StackOwner(Protocol):
    """All models, as far as one stack tells of itself."""

    def opened(self, stack: "ModelStack", /) -> None:
        """The archive is open, so all names are known. Raises NameTaken if another stack has one of them."""

    def ready(self, stack: "ModelStack", /) -> None:
        """Requests are answered."""

    def gone(self, stack: "ModelStack", /) -> None:
        """All processes have ended."""

    def seconds_to_stop(self) -> float:
        """Limit for a stack's requests to end."""


class ModelStack:
    """The processes of the model ``name``, in a new folder ``home``; its gates are open while it is ready.

    A model without a script has none: the common workers and model servers serve it, which find its
    deployment in its folder.
    """

    def __init__(
        self, name: str, url: str, run: RunFacts, home: Path, owner: StackOwner, bytes_on_disk: int
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
            run.spawn_workers,
            counts=run.counts,
            servers=run.servers,
        )
        request = ServeRequest(url, run.model_server, run.environ)
        self._stack = Stack(run.settings.for_one_of_many(name), request, host, of=name)
        self._metrics = RunMetrics(lambda: self._stack, self._workspace.journal)

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
        """True if a worker is answering a request."""
        alive = self._stack.readiness.heartbeats.alive
        return is_path_locked(self._workspace.deployment) or any(
            under_way(self._workspace.journal / str(pid)) for pid in alive
        )

    @property
    def memory_bytes(self) -> int:
        """Memory of its processes, and what it has added to the common model servers."""
        pids = [child.pid for child in self.children()]
        own_bytes = sum(memory_of_tree(pid) for pid in pids if pid)
        return own_bytes + self._run.servers.memory_of(self.models)

    def measure(self) -> Iterator[MeasuredMetric]:
        """Metrics of its processes and workers, and the stages of its requests."""
        yield from self._metrics.measure_stack(self._stack.settings.gunicorn_threads)

    async def start(self) -> None:
        """Opens the archive, starts its processes, and then opens the gates. Raises StopServing."""
        await self._run.servers.begun.wait()
        async with self._run.turns.turn():
            deployment = await self._load()
        self._stack.begin_serving()
        self._open_gates(deployment)
        self._owner.ready(self)

    async def _load(self) -> Deployment:
        make_workspace_within(self._run.workspace, self._workspace.root)
        prepared = await self._stack.open_archive()
        self.models = {model.name: model.versions for model in prepared.models}
        self._owner.opened(self)
        planned = await self._stack.expect(prepared, self._run.port)
        deployment = planned.deployment
        if self.has_workers:
            self._listener.bind(str(self._workspace.root / WEB_SOCKET))
            self._listener.listen(BACKLOG)
            await self._stack.open_control_api()
        await self._stack.start_in_time(prepared, planned, (self._listener,))
        return deployment

    def _open_gates(self, deployment: Deployment) -> None:
        gates = self._run.gates
        if self.has_workers:
            gates.lead_to(self._workspace.root / WEB_SOCKET, self.name, self.models)
            return
        new = self._workspace.deployment.with_suffix(".new")
        new.write_bytes(deployment.to_json())
        new.replace(self._workspace.deployment)
        gates.share(self._workspace.root, self.name, self.models)
        gates.lead_to(self._run.workspace.root / COMMON_SOCKET, self.name, self.models)
        if deployment.default_model == self.name and deployment.default_accept in {None, JSON}:
            gates.lead_past_workers(self.name)

    def lose_model_server(self, index: int) -> None:
        """Makes its workers' requests wait until the ended common model server has the models again."""
        if self.is_ready and self.has_workers and self.models:
            self._stack.readiness.lose(index)

    async def watch(self) -> None:
        """Runs until a process gives up. Raises StopServing then."""
        await self._stack.watch_forever()

    def shut(self) -> None:
        """Closes the gates; idempotent."""
        if not self.is_loading:
            self._run.gates.close(self.name, self.models)

    async def stop(self) -> None:
        """Closes gates, lets requests end, ends the processes, and removes the folder; called once."""
        self.shut()
        is_loading = self.is_loading
        if is_loading:
            self._stack.abandon_loading()
        self._stack.readiness.begin_stopping()
        # A load has no requests yet.
        seconds = LAST_STEPS_SECONDS if is_loading else self._owner.seconds_to_stop()
        deadline = time.monotonic() + seconds
        try:
            await asyncio.gather(
                self._until_common_workers_end(deadline),
                self._stack.children.stop_workers(seconds),
            )
            await self._stack.stop_model_servers(max(deadline - time.monotonic(), LAST_STEPS_SECONDS))
        finally:
            self._stack.close()
            self._listener.close()
            self._owner.gone(self)
            await asyncio.to_thread(shutil.rmtree, self._workspace.root, ignore_errors=True)

    async def _until_common_workers_end(self, deadline: float) -> None:
        """Makes common workers begin no more requests; returns once none is under way, at most then."""
        try:
            descriptor = os.open(self._workspace.deployment, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        self._workspace.deployment.unlink()
        try:
            # The kernel does not notify of released locks.
            while is_locked(descriptor) and time.monotonic() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(LOCK_PAUSE_SECONDS)
        finally:
            os.close(descriptor)
