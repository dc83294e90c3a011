"""The serving stacks of all models of a run: who may load when and where, and what they take."""

import asyncio
import itertools
import logging
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

from tfs_proxy.errors import NameTaken
from tfs_proxy.multimodel.added_up import added_up
from tfs_proxy.multimodel.capacity.admission import (
    MOST_SAMPLES,
    AdmissionLimits,
    Occupancy,
    StackMemory,
    refusal,
)
from tfs_proxy.multimodel.capacity.eviction import ModelUse
from tfs_proxy.multimodel.capacity.gpu_devices import (
    DESCRIBE_COMMAND,
    LIST_COMMAND,
    GpuDevice,
    devices,
    visible,
)
from tfs_proxy.multimodel.capacity.placement import Placement, place
from tfs_proxy.multimodel.capacity.ports import PortBlocks
from tfs_proxy.multimodel.capacity.sizes import size_of
from tfs_proxy.multimodel.capacity.turns import Turns
from tfs_proxy.multimodel.stacks.model_stack import ModelStack, RunFacts
from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.observe.model_counts import OTHER
from tfs_proxy.resources import memory_left
from tfs_proxy.setting_values import PortRange
from tfs_proxy.supervisor.nginx.kept_connections import STACKS
from tfs_proxy.supervisor.process import ChildProcess
from tfs_proxy.supervisor.request_counter import RequestCounter

log = logging.getLogger(__name__)

DRIVER_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 1.0


class ModelStacks:
    """Makes stacks, and knows those there are; ``requests`` counts by model and follows their loads."""

    def __init__(self, run: RunFacts, requests: RequestCounter) -> None:
        self._run = run
        self._requests = requests
        self._stacks: set[ModelStack] = set()
        self._measured: deque[StackMemory] = deque(maxlen=MOST_SAMPLES)
        self._sizes: dict[str, int] = {}
        self._promised: set[str] = set()
        self._past: list[MeasuredMetric] = []
        self._looked_at = 0.0
        self.stop_by: float | None = None
        self._used_at: dict[str, float] = {}
        self._seen: dict[str, int] = {}
        self._served: dict[str, Collection[str]] = {}
        self._turns = Turns(max(1, run.settings.machine.cores - 1))
        self._placing = asyncio.Lock()
        self._ports = PortBlocks(run.settings.safe_port_range, run.settings.instance_count)

    def make_folders(self) -> None:
        """Make the folders of gates and of stacks, before the first model comes."""
        self._run.gates.make_folders()
        (self._run.workspace.root / STACKS).mkdir()

    def launch(self, name: str, url: str) -> ModelStack:
        """A new stack for the registry, in a folder of its own."""
        home = self._new_home()
        self._promised.discard(name)
        stack = ModelStack(name, url, self._run, home, self, self._sizes.get(name, 0))
        self._stacks.add(stack)
        return stack

    def _new_home(self) -> Path:
        """The folder of the lowest number that is free: nginx keeps connections to those."""
        folder = self._run.workspace.root / STACKS
        taken = {stack.home for stack in self._stacks}
        numbered = (folder / str(number) for number in itertools.count())
        return next(home for home in numbered if home not in taken and not home.exists())

    async def admit(self, name: str, url: str) -> None:
        """Raise NotEnoughResources if the model does not fit into the memory that is left."""
        size = await asyncio.to_thread(size_of, url, self._run.settings.max_archive_members)
        self._refuse_if_short(name, size)
        self._sizes[name] = size
        self._promised.add(name)

    def _refuse_if_short(self, name: str, size: int) -> None:
        limits = AdmissionLimits(0, self._run.settings.multi_model_memory_margin)
        loading = [stack for stack in self._stacks if stack.is_loading]
        occupancy = Occupancy(
            len(self._stacks),
            tuple(self._measured),
            [
                *(StackMemory(stack.bytes_on_disk, stack.memory_bytes) for stack in loading),
                *(StackMemory(self._sizes[promised], 0) for promised in self._promised - {name}),
            ],
            memory_left(),
        )
        reason = refusal(name, size, occupancy, limits)
        if reason is not None:
            raise reason

    def turn(self) -> AbstractAsyncContextManager[object]:
        """Wait for one of the turns to load: one core is left to models that serve."""
        return self._turns.turn()

    async def place(self, stack: ModelStack) -> Placement | None:
        """The GPU for a stack; raises NotEnoughResources if none has room."""
        async with self._placing:
            found = visible(await asyncio.to_thread(_devices), self._run.environ)
            settings = self._run.settings
            placed = [other.placement for other in self._stacks if other.placement is not None]
            chosen = place(
                *(stack.name, stack.bytes_on_disk, found, placed),
                margin=settings.gpu_memory_margin,
                most_models=settings.max_loaded_models,
            )
            stack.placement = chosen
        if chosen is not None:
            log.info("model %s: on %s", stack.name, chosen.uuid)
        return chosen

    def ports_of(self, stack: ModelStack) -> PortRange | None:
        """The ports for its model servers, None for any; raises NotEnoughResources if none are left."""
        return self._ports.take(stack, stack.name)

    def opened(self, stack: ModelStack) -> None:
        """Count requests for its models from now on; raises NameTaken if another stack has such a name."""
        for other in self._stacks - {stack}:
            for name in other.names & stack.names:
                raise NameTaken(f"model {stack.name} can't be loaded: {name} is a name of {other.name}")
        self._used_at[stack.name] = time.monotonic()
        self._served[stack.name] = stack.names
        if self._requests.counts.models is not None:
            for name, versions in stack.models.items():
                self._requests.counts.models.known.add(name, versions)

    def ready(self, stack: ModelStack) -> None:
        """Remember what it takes: later loads are judged by that."""
        self._measured.append(StackMemory(stack.bytes_on_disk, stack.memory_bytes))
        self._used_at[stack.name] = time.monotonic()

    def gone(self, stack: ModelStack) -> None:
        """Forget it."""
        self._stacks.discard(stack)
        self._ports.give_back(stack)

    def forget_all_but(self, names: AbstractSet[str]) -> None:
        """End the series of models that are not there any more; to be called often."""
        self._promised &= names
        for name in self._sizes.keys() - names:
            del self._sizes[name]
        for name in [name for name in self._used_at if name not in names]:
            for served_name in self._served.pop(name, ()):
                self._requests.forget(served_name)
            del self._used_at[name]
            self._seen.pop(name, None)

    def uses(self) -> tuple[ModelUse, ...]:
        """The models that serve, and when each was last asked."""
        return tuple(
            ModelUse(stack.name, stack.memory_bytes, self._used_at.get(stack.name, 0.0), stack.in_use)
            for stack in self._stacks
            if stack.is_ready
        )

    def measure(self) -> Iterator[MeasuredMetric]:
        """What all of them measure, those included that are gone if the value must not fall."""
        yield from self._past
        for stack in tuple(self._stacks):
            yield from stack.measure()

    def seconds_to_stop(self) -> float:
        """How long a stack's requests may take to end."""
        limit_seconds = self._run.settings.stop_seconds
        if self.stop_by is None:
            return limit_seconds
        return max(0.0, min(limit_seconds, self.stop_by - time.monotonic()))

    def stopped(self, stack: ModelStack) -> None:
        """Keep what its processes have counted for all models together."""
        self._past = added_up([*self._past, *map(_lasting, stack.measure())])

    def children(self) -> Iterator[ChildProcess]:
        """The processes of all of them."""
        for stack in tuple(self._stacks):
            yield from stack.children()

    def note_requests(self) -> None:
        """Note which models have been asked; to be called often, it looks once a second."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        models = self._requests.counts.models
        for stack in self._stacks:
            count = 0 if models is None else sum(map(models.requests_of, stack.names))
            if count != self._seen.get(stack.name, 0):
                self._seen[stack.name] = count
                self._used_at[stack.name] = now


def _lasting(metric: MeasuredMetric) -> MeasuredMetric:
    """What remains of a stack's metric: counts without a label of its model, which must not fall."""
    if metric.description is catalogue.WORKER_STARTS:
        return metric
    kept = {labels: of for labels, of in (metric.distributions or {}).items() if OTHER in labels}
    return MeasuredMetric(metric.description, distributions=kept)


def _devices() -> tuple[GpuDevice, ...]:
    """What the driver tells of the GPUs; nothing without one."""
    if shutil.which(LIST_COMMAND[0]) is None:
        return ()
    try:
        listing, description = (
            subprocess.run(command, capture_output=True, timeout=DRIVER_SECONDS, check=True, text=True).stdout
            for command in (LIST_COMMAND, DESCRIBE_COMMAND)
        )
    except (OSError, subprocess.SubprocessError):
        log.warning("nvidia-smi does not answer: models are placed as if there were no GPU")
        return ()
    return devices(listing, description)
