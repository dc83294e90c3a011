"""One instance of a variant: all containers of its model, with one window for their first good ping."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator
from enum import Enum

from tfs_proxy.endpoint.containers.hosted import HostedContainer
from tfs_proxy.endpoint.containers.many_models import ManyModels
from tfs_proxy.endpoint.containers.starter import ContainerStarter
from tfs_proxy.endpoint.description.values import HostedModel
from tfs_proxy.errors import StopServing

log = logging.getLogger(__name__)

PING_PAUSE_SECONDS = 0.1
LOOK_SECONDS = 1.0
STOP_SECONDS = 30.0
"""Between SIGTERM and SIGKILL (docs/reference/sagemaker.md)."""


class InstanceState(Enum):
    """The life of an instance."""

    STARTING = "starting"
    IN_SERVICE = "in service"
    DRAINING = "draining"
    ENDED = "ended"


class InstanceFailed(StopServing):
    """An instance did not come up: a container ended, or did not answer its ping in time."""


class VariantInstance:
    """An ``endpoint``'s containers of ``model``; ``of`` is the variant's name and the instance's number."""

    def __init__(
        self, endpoint: str, of: str, model: HostedModel, startup_seconds: float, starter: ContainerStarter
    ) -> None:
        self.name, self.model = of, model
        self.containers: tuple[HostedContainer, ...] = ()
        self.many_models: dict[str, ManyModels] = {}
        self.state = InstanceState.STARTING
        self.outstanding = 0
        self._endpoint, self._startup_seconds, self._starter = endpoint, startup_seconds, starter
        self._idle = asyncio.Event()
        self._idle.set()

    async def start(self) -> None:
        """Return once every container answers its ping; raises InstanceFailed or ArchiveError."""
        began = time.monotonic()
        for definition in self.model.containers:
            of = self.name if len(self.model.containers) == 1 else f"{self.name}/{definition.name}"
            started = await self._starter.start(self._endpoint, of, self.model.name, definition)
            self.containers = (*self.containers, started)
            if definition.many_models:
                models = self._starter.many_models(self._endpoint, started, definition)
                self.many_models[started.name] = models
        await self._until_healthy(began + self._startup_seconds)
        self.state = InstanceState.IN_SERVICE
        log.info("%s is in service after %.1f s", self.name, time.monotonic() - began)

    async def _until_healthy(self, deadline: float) -> None:
        waiting = list(self.containers)
        while waiting:
            healthy = await asyncio.gather(*(container.is_healthy() for container in waiting))
            waiting = [container for container, well in zip(waiting, healthy, strict=True) if not well]
            ended = [container for container in waiting if container.has_ended]
            if ended:
                raise InstanceFailed(
                    f"{self.name}: the container {ended[0].name} has ended.\n{ended[0].last_lines}"
                )
            if waiting and time.monotonic() > deadline:
                names = ", ".join(container.name for container in waiting)
                raise InstanceFailed(
                    f"{self.name}: no 200 from /ping of {names} within {self._startup_seconds:g} s "
                    "(ContainerStartupHealthCheckTimeoutInSeconds)."
                )
            if waiting:
                await asyncio.sleep(PING_PAUSE_SECONDS)

    def has_failed(self) -> bool:
        """Whether a container has ended that should serve."""
        return self.state is InstanceState.IN_SERVICE and any(each.has_ended for each in self.containers)

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Count a request while the block runs: `drain` waits for it."""
        self.outstanding += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.outstanding -= 1
            if not self.outstanding:
                self._idle.set()

    async def drain(self, seconds: float) -> None:
        """Take no more requests, and wait for those that it has, at most ``seconds``."""
        self.state = InstanceState.DRAINING
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()

    async def stop(self) -> None:
        """End all containers; idempotent."""
        self.state = InstanceState.ENDED
        await asyncio.gather(*(container.stop(STOP_SECONDS) for container in self.containers))
