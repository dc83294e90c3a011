"""The state machine of a child process, arrow by arrow, with a clock and children made by hand."""

import asyncio
import ctypes
import os
from collections.abc import Callable, Iterator

import pytest

from tfs_proxy.run.host.processes import describe_exit, shell_status
from tfs_proxy.run.process import Backoff, ChildProcess, ProcessSpec, ProcessState
from tfs_proxy.values.processes import become_subreaper

SPEC = ProcessSpec(name="child", argv=("child",), env={}, backoff=Backoff(tries=3, healthy_seconds=10))

WITHIN_SECONDS = 20.0
SURVIVORS = "(trap '' TERM; exec sleep 60) & " * 20
"""In a group with so many, some end a moment after the kill."""


class FakeProcess:
    """A process that ends when told to."""

    def __init__(self, exit_status: int | None) -> None:
        self.pid = 2**22 + 1  # above what Linux gives out, so that no real group is ever signalled
        self.signals: list[int] = []
        self._exit_status = exit_status
        self._ended = asyncio.Event()

    async def wait(self) -> int:
        if self._exit_status is None:
            await self._ended.wait()
        assert self._exit_status is not None
        return self._exit_status

    def send_signal(self, number: int) -> None:
        self.signals.append(number)
        self._exit_status = 0
        self._ended.set()


class Stage:
    """Hands out processes in order, and keeps the delays that were slept."""

    def __init__(self, *exits: int | None, lifetimes: float = 0.0) -> None:
        self.processes = [FakeProcess(status) for status in exits]
        self.started = 0
        self.delays: list[float] = []
        self._now = 0.0
        self._lifetimes = lifetimes

    async def start(self, _spec: ProcessSpec, _output: int) -> FakeProcess:
        self.started += 1
        return self.processes[self.started - 1]

    def clock(self) -> float:
        self._now += self._lifetimes / 2 if self._lifetimes else 0.0
        return self._now

    async def sleep(self, seconds: float) -> None:
        self.delays.append(seconds)

    def child(self, may_restart: Callable[[ChildProcess], bool] = lambda _: True) -> ChildProcess:
        return ChildProcess(
            SPEC, may_restart=may_restart, start=self.start, clock=self.clock, sleep=self.sleep
        )


def test_a_child_that_lived_long_counts_anew() -> None:
    """Deaths far apart never add up to giving up."""
    stage = Stage(1, 1, 1, 1, 1, 1, lifetimes=40.0)
    child = stage.child(lambda child: child.starts < 6)

    asyncio.run(child.run())

    assert stage.started == 6
    assert stage.delays == [0.05] * 5


def test_a_program_that_cannot_be_run_counts_as_a_death() -> None:
    """The reason is kept, and nobody waits for it."""

    async def start(_spec: ProcessSpec, _output: int) -> FakeProcess:
        raise PermissionError(13, "Permission denied", "child")

    child = ChildProcess(SPEC, may_restart=lambda _: False, start=start)

    asyncio.run(child.run())

    assert (child.state, child.exit_status) == (ProcessState.GAVE_UP, 127)
    assert "Permission denied" in child.last_lines[-1]


async def stopped_while_it_starts(finish: FakeProcess | None) -> ChildProcess:
    """A child that is asked to stop while it is being started, which ends with ``finish`` nevertheless."""
    starting = asyncio.Event()

    async def start(_spec: ProcessSpec, _output: int) -> FakeProcess:
        starting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if finish is None:
                raise
        assert finish is not None
        return finish

    child = ChildProcess(SPEC, start=start)
    running = asyncio.create_task(child.run())
    await starting.wait()
    async with asyncio.timeout(WITHIN_SECONDS):
        await child.stop(0.01)
    await running
    return child


def test_stopping_cancels_a_start_that_hangs() -> None:
    """Nobody waits for what would be stopped at once."""
    child = asyncio.run(stopped_while_it_starts(None))

    assert (child.state, child.exit_status) == (ProcessState.EXITED, None)


def test_a_process_that_was_started_just_before_the_stop_is_stopped() -> None:
    async def scenario() -> tuple[ChildProcess, FakeProcess]:
        process = FakeProcess(None)
        return await stopped_while_it_starts(process), process

    child, process = asyncio.run(scenario())

    assert (child.state, child.exit_status) == (ProcessState.EXITED, 0)
    assert process.signals == [SPEC.stop_signal]


def test_stopping_while_backing_off_starts_nothing_more() -> None:
    """BACKOFF -> EXITED."""

    async def scenario() -> tuple[ChildProcess, Stage]:
        stage = Stage(1, 1)
        child = stage.child()
        asleep = asyncio.Event()

        async def sleep(_seconds: float) -> None:
            asleep.set()
            await asyncio.Event().wait()

        child._sleep = sleep
        running = asyncio.create_task(child.run())
        await asleep.wait()
        await child.stop(5)
        await running
        return child, stage

    child, stage = asyncio.run(scenario())

    assert (child.state, stage.started) == (ProcessState.EXITED, 1)


@pytest.fixture
def subreaper() -> Iterator[None]:
    """Orphans fall to this process for the time of a test, as to a supervisor with a zygote."""
    if not become_subreaper():
        pytest.skip("orphans fall to process 1 on this system")
    yield
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)


@pytest.mark.usefixtures("subreaper")
def test_a_group_with_survivors_is_ended() -> None:
    async def scenario() -> int:
        started: list[int] = []
        argv = ("/bin/sh", "-c", f"{SURVIVORS} echo ready; exec sleep 60")
        heard = asyncio.Event()
        spec = ProcessSpec("child", argv, dict(os.environ))
        child = ChildProcess(spec, started=started.append, heard=lambda _line: heard.set())
        running = asyncio.create_task(child.run())
        async with asyncio.timeout(WITHIN_SECONDS):
            await heard.wait()
            await child.stop(WITHIN_SECONDS)
            await running
        return started[0]

    with pytest.raises(ProcessLookupError):
        os.killpg(asyncio.run(scenario()), 0)


def test_exit_statuses_read_as_words() -> None:
    """Logs name signals, not negative numbers."""
    assert [describe_exit(status) for status in (0, 3, -9, None)] == [
        "exit status 0",
        "exit status 3",
        "SIGKILL",
        "no exit status",
    ]
    assert [shell_status(status) for status in (0, 255, -9, None)] == [0, 255, 137, 1]
