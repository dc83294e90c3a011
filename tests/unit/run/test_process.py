"""The state machine of a child process, arrow by arrow, with real children."""

import asyncio
import ctypes
import os
import signal
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from tfs_proxy.run.host.processes import RunningProcess, describe_exit, shell_status
from tfs_proxy.run.process import Backoff, ChildProcess, ProcessSpec, ProcessState, spawn
from tfs_proxy.values.processes import become_subreaper

FAILS = ProcessSpec("child", ("/bin/sh", "-c", "exit 1"), dict(os.environ))
SLEEPS = replace(FAILS, argv=("/bin/sh", "-c", "exec sleep 60"))
WITHIN_SECONDS = 20.0
SURVIVORS = "(trap '' TERM; exec sleep 60) & " * 20
"""In a group with so many, some end a moment after the kill."""


def test_a_child_that_lived_long_counts_anew() -> None:
    """Deaths far apart never add up to giving up: here each life is long."""
    spec = replace(FAILS, backoff=Backoff(first_seconds=0.001, tries=3, healthy_seconds=0.0))
    child = ChildProcess(spec, may_restart=lambda child: child.starts < 6)

    asyncio.run(child.run())

    assert (child.starts, child.state) == (6, ProcessState.GAVE_UP)


def test_a_program_that_cannot_be_run_counts_as_a_death() -> None:
    """The reason is kept, and nobody waits for it."""
    child = ChildProcess(replace(FAILS, argv=("/etc",)), may_restart=lambda _: False)

    asyncio.run(child.run())

    assert (child.state, child.exit_status) == (ProcessState.GAVE_UP, 127)
    assert "Permission denied" in child.last_lines[-1]


@pytest.mark.parametrize(("starts_late", "status"), [(False, None), (True, -signal.SIGTERM)])
def test_stopping_cancels_a_start_that_hangs_or_stops_what_was_started_just_before(
    starts_late: bool, status: int | None
) -> None:
    """Nobody waits for what would be stopped at once."""

    async def scenario() -> ChildProcess:
        starting = asyncio.Event()

        async def start(spec: ProcessSpec, output: int) -> RunningProcess:
            starting.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if not starts_late:
                    raise
            return await spawn(spec, output)

        child = ChildProcess(SLEEPS, start=start)
        running = asyncio.create_task(child.run())
        await starting.wait()
        async with asyncio.timeout(WITHIN_SECONDS):
            await child.stop(WITHIN_SECONDS)
        await running
        return child

    child = asyncio.run(scenario())
    assert (child.state, child.exit_status) == (ProcessState.EXITED, status)


def test_stopping_while_backing_off_starts_nothing_more() -> None:
    """BACKOFF -> EXITED."""

    async def scenario() -> ChildProcess:
        died, spec = (
            asyncio.Event(),
            replace(FAILS, backoff=Backoff(first_seconds=60.0, longest_seconds=60.0)),
        )

        def may_restart(_: ChildProcess) -> bool:
            died.set()
            return True

        child = ChildProcess(spec, may_restart=may_restart)
        running = asyncio.create_task(child.run())
        async with asyncio.timeout(WITHIN_SECONDS):
            await died.wait()
            assert child.state is ProcessState.BACKOFF
            await child.stop(WITHIN_SECONDS)
            await running
        return child

    child = asyncio.run(scenario())
    assert (child.state, child.starts) == (ProcessState.EXITED, 1)


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
        heard = asyncio.Event()
        spec = replace(FAILS, argv=("/bin/sh", "-c", f"{SURVIVORS} echo ready; exec sleep 60"))
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
