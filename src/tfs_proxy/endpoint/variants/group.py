"""Equal instances of one model, for a variant or an inference component: started, scaled, ended as one."""

import asyncio
import itertools
import logging
import random

from msgspec import Struct, field

from tfs_proxy.endpoint.containers.starter import ContainerStarter
from tfs_proxy.endpoint.description.values import HostedModel
from tfs_proxy.endpoint.variants.instance import InstanceState, VariantInstance
from tfs_proxy.endpoint.variants.routing import instance_for
from tfs_proxy.errors import StopServing

log = logging.getLogger(__name__)

DRAIN_SECONDS = 60.0
"""The longest answer that an instance may still give before it ends."""


class GroupPlan(Struct, frozen=True):
    """What is started: ``count`` instances of ``model`` for ``variant``, each within ``startup_seconds``.

    ``component`` is the inference component that they belong to, if there is one.
    """

    endpoint: str
    variant: str
    model: HostedModel
    count: int
    startup_seconds: float
    routing: str
    component: str | None = None

    @property
    def name(self) -> str:
        """What logs call its instances, before their numbers."""
        return f"{self.variant}/{self.component}" if self.component else self.variant


class InstanceGroup(Struct):
    """The instances of a plan; ``weight`` is the share of requests of its variant."""

    plan: GroupPlan
    starter: ContainerStarter
    weight: float = 1.0
    instances: list[VariantInstance] = field(default_factory=list)
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    _ending: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def wanted(self) -> int:
        """How many instances there should be."""
        return len(self.instances)

    @property
    def is_starting(self) -> bool:
        """Whether an instance has not been in service yet."""
        return any(each.state is InstanceState.STARTING for each in self.instances)

    @property
    def in_service(self) -> list[VariantInstance]:
        """Those that take requests."""
        return [each for each in self.instances if each.state is InstanceState.IN_SERVICE]

    def pick(self, draw: random.Random) -> VariantInstance | None:
        """An instance for a request; None if none is in service."""
        return instance_for(self.plan.routing, self.in_service, draw) if self.in_service else None

    async def start(self) -> None:
        """Return once all are in service; raises StopServing, with none left, if one is not."""
        await self._start_more(self.plan.count)

    async def scale(self, count: int) -> None:
        """Have ``count`` instances: start more, or drain and end some; raises StopServing as `start` does."""
        missing = count - len(self.instances)
        if missing > 0:
            await self._start_more(missing)
        for surplus in self.instances[count:]:
            self._end_later(surplus)

    async def replace_failed(self) -> None:
        """End instances of which a container has ended, and start others in their places."""
        failed = [each for each in self.instances if each.has_failed()]
        for instance in failed:
            log.error("%s has ended and is replaced:\n%s", instance.name, _last_lines(instance))
            self.instances.remove(instance)
            await instance.stop()
        try:
            await self._start_more(len(failed))
        except StopServing as error:
            log.error("%s: %s", self.plan.name, error)  # noqa: TRY400 - the sentence says it all

    async def drain_and_stop(self) -> None:
        """Let all requests end, then end all instances."""
        await asyncio.gather(*(_drained(each) for each in self.instances), *self._ending)

    async def stop(self) -> None:
        """End all instances at once."""
        await asyncio.gather(*(each.stop() for each in self.instances))

    async def _start_more(self, count: int) -> None:
        more = [self._new() for _ in range(count)]
        self.instances += more
        started = [asyncio.create_task(each.start()) for each in more]
        try:
            await asyncio.gather(*started)
        except BaseException:
            for task in started:
                task.cancel()
            await asyncio.gather(*started, return_exceptions=True)
            self.instances = [each for each in self.instances if each not in more]
            await asyncio.gather(*(each.stop() for each in more))
            raise

    def _new(self) -> VariantInstance:
        of = f"{self.plan.name}/{next(self._numbers)}"
        plan = self.plan
        return VariantInstance(plan.endpoint, of, plan.model, plan.startup_seconds, self.starter)

    def _end_later(self, surplus: VariantInstance) -> None:
        self.instances.remove(surplus)
        task = asyncio.create_task(_drained(surplus))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


async def _drained(instance: VariantInstance) -> None:
    await instance.drain(DRAIN_SECONDS)
    await instance.stop()


def _last_lines(instance: VariantInstance) -> str:
    return "\n".join(each.last_lines for each in instance.containers if each.has_ended)
