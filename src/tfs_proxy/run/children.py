"""Child processes that are watched together: start them, look at them, and end the watch if one gives up."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

from tfs_proxy.run.gpus import Devices
from tfs_proxy.run.host.processes import describe_exit
from tfs_proxy.run.process import ChildProcess, ProcessSpec, ProcessState, Spawn, spawn
from tfs_proxy.run.run_loop import cancel
from tfs_proxy.values.errors import ProcessGaveUp, StopServing

TICK_SECONDS = 0.05
IDLE_TICK_SECONDS = 1.0
"""While nothing happens, the processes are checked this rarely: a check takes 0.3 ms."""

TICK_GROWTH = 1.5

Deaths = Counter[tuple[str, str]]
"""Ends of processes by name of the child and how it ended."""

Tick = Callable[[], bool | None]
"""Called at each look at the processes; returns true if the next one should come soon."""


class Children(ABC):
    """The children of the front or of a stack.

    ``down`` always has the names of those that are being restarted, ``deaths`` counts them.
    """

    def __init__(self, down: set[str], deaths: Deaths, tick: Tick = lambda: None) -> None:
        self.deaths = deaths
        self.devices = Devices()
        self._down, self._tick = down, tick
        self._tick_seconds = TICK_SECONDS
        self._tasks: set[asyncio.Task[None]] = set()
        self._stirred = asyncio.Event()

    def start(self, spec: ProcessSpec, spawn: Spawn = spawn) -> ChildProcess:
        child = ChildProcess(
            spec,
            may_restart=self._may_restart,
            started=lambda _pid: self._stirred.set(),
            heard=partial(self.devices.hear, spec.name),
            start=spawn,
        )
        task = asyncio.create_task(child.run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _task: self._stirred.set())
        return child

    @abstractmethod
    def in_start_order(self) -> list[ChildProcess]:
        """All children that have been started; they are stopped in reverse order."""

    def look_every(self, seconds: float) -> None:
        """Looks at the processes no more often than this."""
        self._tick_seconds = seconds

    async def watch_during(self, work: Awaitable[None]) -> None:
        """Awaits ``work``. Raises StopServing as soon as a process gives up."""

        async def until_one_gives_up() -> None:
            pause_seconds = self._tick_seconds
            while True:
                self._stirred.clear()
                longer_seconds = min(pause_seconds * TICK_GROWTH, IDLE_TICK_SECONDS)
                pause_seconds = self._tick_seconds if self._look() else longer_seconds
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_seconds):
                        await self._stirred.wait()

        doing = asyncio.ensure_future(work)
        watching = asyncio.create_task(until_one_gives_up())
        try:
            await asyncio.wait({doing, watching}, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                doing.result()
            else:
                watching.result()
        finally:
            await cancel(doing, watching)

    def _look(self) -> bool:
        """Looks once; True if the next look should come soon. Raises StopServing if a process gave up."""
        children = self.in_start_order()
        for child in children:
            child.reap_orphans()
            if child.state is ProcessState.GAVE_UP:
                raise self._reason_to_stop(child)
        self._down.clear()
        self._down.update(child.name for child in children if self._is_down(child))
        return bool(self._tick()) or bool(self._down)

    def _is_down(self, child: ChildProcess) -> bool:
        return child.state is ProcessState.BACKOFF

    def _may_restart(self, child: ChildProcess) -> bool:
        self._stirred.set()
        self.deaths[child.name, describe_exit(child.exit_status)] += 1
        return True

    def _reason_to_stop(self, child: ChildProcess) -> StopServing:
        how = describe_exit(child.exit_status)
        return ProcessGaveUp(f"{child.name} ended with {how} too often ({child.starts} starts).")
