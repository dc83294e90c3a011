"""The instances of a variant: start, and choice for a request."""

import asyncio
import contextlib
import itertools
import logging
import random
import time
from collections.abc import Iterator, Sequence
from enum import Enum

from msgspec import Struct, field

from tfs_proxy.tools.endpoint.container import HostedContainer, ManyModels
from tfs_proxy.tools.endpoint.operations import RANDOM, HostedModel, Variant
from tfs_proxy.tools.endpoint.starter import ContainerStarter
from tfs_proxy.values.errors import StopServing

log = logging.getLogger(__name__)

PING_PAUSE_SECONDS = 0.1

STOP_SECONDS = 30.0
"""Seconds from SIGTERM to SIGKILL (docs/reference/sagemaker.md)."""

DRAIN_SECONDS = 60.0
"""Limit of answers of an instance that is to end."""


def by_weight(variants: Sequence["InstanceGroup"], draw: random.Random) -> "InstanceGroup":
    """A random variant, weighted; the first if all weights are 0."""
    weights = [group.variant.weight for group in variants]
    return draw.choices(variants, weights)[0] if sum(weights) > 0 else variants[0]


def instance_for(
    strategy: str, instances: Sequence["VariantInstance"], draw: random.Random
) -> "VariantInstance":
    """Any instance by the strategy RANDOM, else one with the fewest requests."""
    if strategy == RANDOM:
        return draw.choice(instances)
    fewest = min(instance.outstanding for instance in instances)
    return draw.choice([instance for instance in instances if instance.outstanding == fewest])


class InstanceState(Enum):
    STARTING = "starting"
    IN_SERVICE = "in service"
    DRAINING = "draining"
    ENDED = "ended"


class InstanceFailed(StopServing):
    """An instance did not start: a container ended, or did not answer its ping in time."""


class VariantInstance:
    """An ``endpoint``'s containers of ``model``; ``of`` is the variant's name and the instance's number."""

    def __init__(
        self, endpoint: str, of: str, model: HostedModel, startup_seconds: float, starter: ContainerStarter
    ) -> None:
        self.name = of
        self.model = model
        self.containers: tuple[HostedContainer, ...] = ()
        self.many_models: dict[str, ManyModels] = {}
        self.state = InstanceState.STARTING
        self.outstanding = 0
        self._endpoint = endpoint
        self._startup_seconds = startup_seconds
        self._starter = starter
        self._idle = asyncio.Event()
        self._idle.set()

    async def start(self) -> None:
        """Returns once every container answers its ping. Raises InstanceFailed or ArchiveError."""
        began = time.monotonic()
        for definition in self.model.containers:
            of = self.name if len(self.model.containers) == 1 else f"{self.name}/{definition.name}"
            started = await self._starter.start(self._endpoint, of, self.model.name, definition)
            self.containers = (*self.containers, started)
            if definition.many_models:
                models = self._starter.many_models(self._endpoint, started, definition)
                self.many_models[started.name] = models
        waiting = list(self.containers)
        while waiting:
            healthy = await asyncio.gather(*(container.is_healthy() for container in waiting))
            waiting = [container for container, well in zip(waiting, healthy, strict=True) if not well]
            ended = [container for container in waiting if container.has_ended]
            if ended:
                raise InstanceFailed(
                    f"{self.name}: the container {ended[0].name} has ended.\n{ended[0].last_lines}"
                )
            if waiting and time.monotonic() > (began + self._startup_seconds):
                names = ", ".join(container.name for container in waiting)
                raise InstanceFailed(
                    f"{self.name}: no 200 from /ping of {names} within {self._startup_seconds:g} s "
                    "(ContainerStartupHealthCheckTimeoutInSeconds)."
                )
            if waiting:
                await asyncio.sleep(PING_PAUSE_SECONDS)
        self.state = InstanceState.IN_SERVICE
        log.info("%s is in service after %.1f s", self.name, time.monotonic() - began)

    def has_failed(self) -> bool:
        return self.state is InstanceState.IN_SERVICE and any(each.has_ended for each in self.containers)

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Counts a request while the block runs: `drain` waits for it."""
        self.outstanding += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.outstanding -= 1
            if not self.outstanding:
                self._idle.set()

    async def drain(self, seconds: float) -> None:
        """Takes no more requests, and waits at most ``seconds`` for those under way."""
        self.state = InstanceState.DRAINING
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()

    async def stop(self) -> None:
        self.state = InstanceState.ENDED
        await asyncio.gather(*(container.stop(STOP_SECONDS) for container in self.containers))


async def start_all(parts: "Sequence[VariantInstance | InstanceGroup]") -> None:
    """Returns once all are in service. Raises StopServing, with all stopped, if one fails."""
    starting = [asyncio.create_task(each.start()) for each in parts]
    try:
        await asyncio.gather(*starting)
    except BaseException:
        for task in starting:
            task.cancel()
        await asyncio.gather(*starting, return_exceptions=True)
        await asyncio.gather(*(each.stop() for each in parts))
        raise


class InstanceGroup(Struct):
    """Instances of the model of a variant."""

    endpoint: str
    """Name of the endpoint."""

    variant: Variant
    """Variant that they are instances of."""

    model: HostedModel
    """Model that each of them serves."""

    starter: ContainerStarter
    """Starter of their containers."""

    instances: list[VariantInstance] = field(default_factory=list)
    """Instances that are there, those that are starting among them."""

    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    """Numbers for the instances' names, from 1."""

    _ending: set[asyncio.Task[None]] = field(default_factory=set)
    """Tasks of surplus instances that finish their requests and end."""

    @property
    def name(self) -> str:
        return self.variant.name

    @property
    def is_starting(self) -> bool:
        return any(each.state is InstanceState.STARTING for each in self.instances)

    @property
    def in_service(self) -> list[VariantInstance]:
        return [each for each in self.instances if each.state is InstanceState.IN_SERVICE]

    def pick(self, draw: random.Random) -> VariantInstance | None:
        """An instance for a request; None if none is in service."""
        return instance_for(self.variant.routing, self.in_service, draw) if self.in_service else None

    async def start(self) -> None:
        """Returns once all are in service. Raises StopServing, with none left, if one fails."""
        await self._start_more(self.variant.instance_count)

    async def scale(self, count: int) -> None:
        """Starts more instances, or drains and ends some. Raises StopServing as `start` does."""
        missing = count - len(self.instances)
        if missing > 0:
            await self._start_more(missing)
        for surplus in self.instances[count:]:
            self.instances.remove(surplus)
            task = asyncio.create_task(_drained(surplus))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def replace_failed(self) -> None:
        failed = [each for each in self.instances if each.has_failed()]
        for instance in failed:
            lines = "\n".join(each.last_lines for each in instance.containers if each.has_ended)
            log.error("%s has ended and is replaced:\n%s", instance.name, lines)
            self.instances.remove(instance)
            await instance.stop()
        try:
            await self._start_more(len(failed))
        except StopServing as error:
            log.error("%s: %s", self.name, error)  # noqa: TRY400 - the sentence says it all

    async def drain_and_stop(self) -> None:
        await asyncio.gather(*(_drained(each) for each in self.instances), *self._ending)

    async def stop(self) -> None:
        await asyncio.gather(*(each.stop() for each in self.instances))

    async def _start_more(self, count: int) -> None:
        names = (f"{self.name}/{next(self._numbers)}" for _ in range(count))
        more = [
            VariantInstance(self.endpoint, name, self.model, self.variant.startup_seconds, self.starter)
            for name in names
        ]
        self.instances += more
        try:
            await start_all(more)
        except BaseException:
            self.instances = [each for each in self.instances if each not in more]
            raise


async def _drained(instance: VariantInstance) -> None:
    await instance.drain(DRAIN_SECONDS)
    await instance.stop()
