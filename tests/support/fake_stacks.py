"""Serving stacks of models that are only played: each does what its part says, and the fleet looks on."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tfs_proxy.run.readiness import StackState
from tfs_proxy.values.errors import ProcessGaveUp

DIED = "the model server ended with SIGSEGV too often (3 starts)."


@dataclass(frozen=True, slots=True)
class Part:
    """What one stack does: seconds, and the errors that its start or stop ends with."""

    start_seconds: float = 1.0
    start_error: Exception | None = None
    cancel_seconds: float = 0.0
    lives_seconds: float | None = None
    stop_seconds: float = 0.0
    stop_error: Exception | None = None


@dataclass
class FakeStack:
    """What the registry needs of a `ModelStack`: a fleet has many."""

    fleet: "Fleet"
    name: str
    url: str
    part: Part
    started: bool = False
    ready: bool = False
    is_stopping: bool = False
    stopped: bool = False
    unhealthy: str = ""
    death: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def state(self) -> StackState:
        return StackState.READY if self.ready else StackState.STARTING

    async def start(self) -> None:
        self.fleet.note_start(self)
        self.started = True
        try:
            await asyncio.sleep(self.part.start_seconds)
        except asyncio.CancelledError:
            await asyncio.sleep(self.part.cancel_seconds)
            raise
        if self.part.start_error is not None:
            raise self.part.start_error
        self.ready = True

    async def watch_forever(self) -> None:
        if not self.ready:
            self.fleet.faults.append(f"a stack of {self.name} is watched that is not ready")
        try:
            async with asyncio.timeout(self.part.lives_seconds):
                await self.death.wait()
        except TimeoutError:
            pass
        self.ready = False
        raise ProcessGaveUp(DIED)

    def shut(self) -> None:
        self.ready = False

    async def stop(self, _stop_by: float) -> None:
        self.shut()
        if self.is_stopping:
            self.fleet.faults.append(f"a stack of {self.name} is stopped twice")
        self.is_stopping = True
        await asyncio.sleep(self.part.stop_seconds)
        self.stopped = True
        if self.part.stop_error is not None:
            raise self.part.stop_error

    @property
    def is_live(self) -> bool:
        """Whether it holds processes."""
        return self.started and not self.stopped


class Fleet:
    """All stacks that were launched; ``choose`` gives each its part.

    ``faults`` has what no order of calls may lead to: an error would only be that of the model.
    """

    def __init__(self, choose: Callable[[str, str], Part] = lambda _name, _url: Part()) -> None:
        self.stacks: list[FakeStack] = []
        self.faults: list[str] = []
        self.most_names = 0
        self._choose = choose

    def launch(self, name: str, url: str) -> Any:
        """A `Launch`."""
        stack = FakeStack(self, name, url, self._choose(name, url))
        self.stacks.append(stack)
        return stack

    def note_start(self, stack: FakeStack) -> None:
        """A stack begins to take resources: no other one of its name may have any."""
        if stack.started:
            self.faults.append(f"a stack of {stack.name} is started twice")
        if stack.name in {other.name for other in self.live()}:
            self.faults.append(f"two stacks of {stack.name} live")
        self.most_names = max(self.most_names, len({other.name for other in self.live()} | {stack.name}))

    def live(self) -> list[FakeStack]:
        """The stacks that hold processes."""
        return [stack for stack in self.stacks if stack.is_live]

    def ready(self) -> dict[str, str]:
        """The urls of the models that answer requests, by name."""
        return {stack.name: stack.url for stack in self.live() if stack.ready}

    def kill(self, name: str) -> None:
        """What answers for the model dies, if anything does."""
        for stack in self.live():
            if stack.name == name and stack.ready:
                stack.death.set()


async def admit_all(_name: str, _url: str) -> None:
    """An `Admit` that refuses nothing."""
