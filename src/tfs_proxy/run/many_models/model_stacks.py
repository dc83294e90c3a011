"""The processes of each loaded model, its folder, and the links by which nginx finds it.

A model's folder has links to what the run has once: counts of requests, the log, nginx. Those that nginx
follows exist while a model is ready. `ModelStacks` makes a stack if there is memory for it.
"""

import asyncio
import itertools
import os
import re
import shutil
import time
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from tfs_proxy.observe.begun_requests import all_under_way
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.observe.process_usage import memory_of_tree
from tfs_proxy.run.host.sockets import unbound
from tfs_proxy.run.host.waiting import in_daemon_thread
from tfs_proxy.run.host.workspace import is_locked, is_path_locked, make_workspace_within
from tfs_proxy.run.many_models.admission import (
    MODEL_SERVER_BYTES,
    MOST_SAMPLES,
    ModelUse,
    Occupancy,
    StackMemory,
    bytes_on_disk,
    refusal,
    turn,
)
from tfs_proxy.run.many_models.shared_servers import SharedServers
from tfs_proxy.run.metrics import RunMetrics
from tfs_proxy.run.nginx.many_models import (
    COMMON_WORKSPACES,
    FAST,
    GATES,
    STACKS,
    WEB_SOCKET,
    links_of,
)
from tfs_proxy.run.opening import ServeRequest
from tfs_proxy.run.process import ChildProcess, Deaths, Spawn
from tfs_proxy.run.readiness import StackState
from tfs_proxy.run.run import RunHost
from tfs_proxy.run.run_loop import LAST_STEPS_SECONDS
from tfs_proxy.run.scraping import ANSWER_SECONDS, ModelServerMetrics, refresh_all
from tfs_proxy.run.stack import Stack, StackHost
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import NameTaken
from tfs_proxy.values.layout import Workspace
from tfs_proxy.values.resources import memory_left
from tfs_proxy.wire.http_server import BACKLOG

LOCK_PAUSE_SECONDS: Final = 0.01
LOOK_SECONDS: Final = 1.0
COUNT_SECONDS: Final = 5.0

_COUNTED: Final = re.compile(
    r'^:tensorflow:serving:request_count\{[^}]*model_name="([^"]+)"[^}]*\} (\d+)', re.MULTILINE
)


class ModelStack(Stack):
    """The stack of the model ``name``; its links exist while it is ready.

    A model without a script has no processes: the common workers and model servers serve it, which find its
    deployment in its folder. It tells its ``owner`` of its life.
    """

    def __init__(
        self,
        settings: Settings,
        request: ServeRequest,
        workspace: Workspace,
        host: StackHost,
        name: str,
        servers: SharedServers,
        owner: "ModelStacks",
    ) -> None:
        super().__init__(settings, request, workspace, host, name, servers)
        self._shared = servers
        self._owner = owner
        self._run = host.run.workspace
        self._listener = unbound()
        self._metrics = RunMetrics(self, workspace.journal)
        self._links: list[Path] = []
        self.requests = 0
        self.used_at = time.monotonic()

    @property
    def served(self) -> Mapping[str, Collection[int]]:
        """The versions of the models of its archive by their names, once it is open."""
        return {model.name: model.versions for model in self.models}

    @property
    def names(self) -> frozenset[str]:
        """All names that it alone may have: its own, and its models'."""
        return frozenset({self.name, *self.served})

    @property
    def state(self) -> StackState:
        return self.readiness.state

    @property
    def unhealthy(self) -> str:
        """The reason why its script says that it can't serve."""
        return self.readiness.heartbeats.unhealthy or ""

    @property
    def in_use(self) -> bool:
        """True if a worker is answering a request."""
        return is_path_locked(self.workspace.deployment) or all_under_way(self.workspace.journal) > 0

    @property
    def memory_bytes(self) -> int:
        """Memory of its processes, and what it has added to the common model servers."""
        pids = [child.pid for child in self.children.in_start_order()]
        own_bytes = sum(memory_of_tree(pid) for pid in pids if pid)
        return own_bytes + self._shared.memory_of(self.models)

    def measure(self) -> Iterator[MeasuredMetric]:
        """Metrics of its processes and workers."""
        yield from self._metrics.measure_stack(self.settings.gunicorn_threads)

    async def start(self) -> None:
        """Opens the archive, starts its processes, and then makes the links. Raises StopServing."""
        await self._shared.begun.wait()
        async with self._owner.turn():
            make_workspace_within(self._run, self.workspace.root)
            prepared = await self.open_archive()
            self._owner.add_names(self)
            self.readiness.rely_on(self._shared.states, self.served)
            planned = await self.make_plan(prepared)
            if self.has_workers:
                self._listener.bind(str(self.workspace.root / WEB_SOCKET))
                self._listener.listen(BACKLOG)
                await self.open_control_api()
            await self.start_in_time(prepared, planned, (self._listener,))
        self.begin_serving()
        if not self.has_workers:
            new = self.workspace.deployment.with_suffix(".new")
            new.write_bytes(planned.deployment.to_json())
            new.replace(self.workspace.deployment)
        # Requests go to its workers from now on.
        for link, target in links_of(self.name, planned.deployment, self._run, self.workspace).items():
            link.symlink_to(target)
            self._links.append(link)
        self.used_at = time.monotonic()
        self._owner.note_memory(self)

    def shut(self) -> None:
        """Removes the links; idempotent."""
        while self._links:
            self._links.pop().unlink(missing_ok=True)

    async def stop(self, stop_by: float) -> None:
        """Removes the links, lets requests end, ends the processes, and removes the folder; called once.

        Requests have until ``stop_by``, of `time.monotonic`, if the settings' limit is not sooner.
        """
        self.shut()
        is_loading = self.state is StackState.STARTING
        self.readiness.begin_stopping()
        now = time.monotonic()
        of_requests = max(0.0, min(self.settings.stop_seconds, stop_by - now))
        seconds = LAST_STEPS_SECONDS if is_loading else of_requests  # a load has none yet
        deadline = now + seconds
        try:
            stopping = asyncio.ensure_future(self.children.stop_workers(seconds))
            with suppress(FileNotFoundError):
                descriptor = os.open(self.workspace.deployment, os.O_RDONLY | os.O_CLOEXEC)
                # Common workers begin no more requests then. The kernel does not notify of released locks.
                self.workspace.deployment.unlink()
                try:
                    while is_locked(descriptor) and time.monotonic() < deadline:  # noqa: ASYNC110
                        await asyncio.sleep(LOCK_PAUSE_SECONDS)
                finally:
                    os.close(descriptor)
            await stopping
            await self._shared.leave(self.models)
        finally:
            self.close()
            self._listener.close()
            self._owner.remove(self)
            await asyncio.to_thread(shutil.rmtree, self.workspace.root, ignore_errors=True)


class ModelStacks:
    """Makes stacks for the registry, and knows their memory, uses and metrics."""

    def __init__(
        self,
        settings: Settings,
        request: ServeRequest,
        host: RunHost,
        spawn_workers: Spawn,
        servers: SharedServers,
    ) -> None:
        self._settings = settings
        self._request = request
        self._host = host
        self._spawn_workers = spawn_workers
        self._servers = servers
        # One core is left to models that serve.
        self._turns = asyncio.Semaphore(max(1, settings.machine.cores - 1))
        self._records = host.records
        self._stacks: set[ModelStack] = set()
        self._measured: deque[StackMemory] = deque(maxlen=MOST_SAMPLES)
        self._sizes: dict[str, int] = {}
        self._served: dict[str, frozenset[str]] = {}
        self._served_counts: Counter[str] = Counter()
        self._looked_at = time.monotonic()
        for folder in (GATES, FAST, COMMON_WORKSPACES, STACKS):
            (host.workspace.root / folder).mkdir()

    def launch(self, name: str, url: str) -> ModelStack:
        """A new stack, in the folder of the lowest free number: nginx keeps connections to those."""
        taken = {stack.workspace.root for stack in self._stacks}
        numbered = (self._host.workspace.root / STACKS / str(number) for number in itertools.count())
        home = next(home for home in numbered if home not in taken and not home.exists())
        deaths = Deaths(self._host.deaths.limits)
        host = StackHost(replace(self._host, deaths=deaths), self._spawn_workers)
        stack = ModelStack(
            self._settings.for_one_of_many(name),
            ServeRequest(url, self._request.model_server, self._request.environ),
            Workspace(home),
            host,
            name,
            self._servers,
            self,
        )
        self._stacks.add(stack)
        return stack

    async def admit(self, name: str, url: str) -> None:
        """Raises NotEnoughResources if the model does not fit into the memory that is left."""
        size = await in_daemon_thread(partial(bytes_on_disk, Path(url)), "size")
        loading = {stack.name: stack for stack in self._stacks if stack.state is StackState.STARTING}
        loaded = {stack.name for stack in self._stacks} - loading.keys()
        occupancy = Occupancy(
            tuple(self._measured),
            # Models that were admitted and have no stack at this moment were promised their memory, too.
            [
                StackMemory(promised, loading[each].memory_bytes if each in loading else 0)
                for each, promised in self._sizes.items()
                if each not in {name, *loaded}
            ],
            memory_left(),
            0 if self._servers.have_had_models else MODEL_SERVER_BYTES,
        )
        reason = refusal(name, size, occupancy)
        if reason is not None:
            raise reason
        self._sizes[name] = size

    def add_names(self, stack: ModelStack) -> None:
        """Counts requests for its models from now on. Raises NameTaken if another stack has such a name."""
        for other in self._stacks - {stack}:
            for name in other.names & stack.names:
                raise NameTaken(f"model {stack.name} can't be loaded: {name} is a name of {other.name}")
        for gone in self._served.get(stack.name, stack.names) - stack.names:  # of another archive
            self._records.forget(gone)
        self._served[stack.name] = stack.names
        if self._records.counts.models is not None:
            for name in stack.names:
                self._records.counts.models.known.add(name, stack.served.get(name, ()))

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Waits until a stack may load."""
        return turn(self._turns)

    def note_memory(self, stack: ModelStack) -> None:
        """Notes the memory of a stack that is ready now."""
        size = self._sizes.get(stack.name, 0)
        self._measured.append(StackMemory(size, stack.memory_bytes, stack.has_workers))

    def remove(self, stack: ModelStack) -> None:
        """Forgets a stack that has ended."""
        self._stacks.discard(stack)
        self._host.deaths.limits.models.pop(stack.name, None)

    def uses(self) -> tuple[ModelUse, ...]:
        return tuple(
            ModelUse(stack.name, stack.memory_bytes, stack.used_at, stack.in_use)
            for stack in self._stacks
            if stack.state is StackState.READY
        )

    def measure(self) -> Iterator[MeasuredMetric]:
        for stack in tuple(self._stacks):
            yield from stack.measure()

    def metrics_folders(self) -> Mapping[str, Path]:
        """The folders of the scripts' own metrics, by model."""
        return {stack.name: stack.workspace.metrics for stack in tuple(self._stacks)}

    def children(self) -> Iterator[ChildProcess]:
        for stack in tuple(self._stacks):
            yield from stack.children.in_start_order()

    def look(self, names: AbstractSet[str]) -> None:
        """Notes which models were asked; call it often.

        Ends the metrics of models that are not among ``names``, the registry's, any more.
        """
        now = time.monotonic()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            models = self._records.counts.models
            for stack in self._stacks:
                count = 0 if models is None else sum(map(models.requests_of, stack.names))
                count += sum(self._served_counts[name] for name in stack.names)
                if count != stack.requests:  # it is used
                    stack.requests = count
                    stack.used_at = now
        for name in self._sizes.keys() - names:
            del self._sizes[name]
        for name in self._served.keys() - names:
            for counted_name in self._served.pop(name):
                self._records.forget(counted_name)

    async def follow_served_counts(self) -> None:
        """Asks the model servers for their counts: nobody else sees calls by gRPC; never returns."""
        metrics = ModelServerMetrics()
        metrics.begin(self._servers.instances, self._servers.metrics_path)
        while True:
            await refresh_all(metrics.answers, ANSWER_SECONDS)
            found = [match for text in metrics.texts().values() for match in _COUNTED.findall(text)]
            self._served_counts = Counter()
            for name, count in found:
                self._served_counts[name] += int(count)
            await asyncio.sleep(COUNT_SECONDS)
