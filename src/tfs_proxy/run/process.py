"""A child process as a state machine, from start to restarts and give-up; and children watched together."""

import asyncio
import contextlib
import logging
import os
import shlex
import signal
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum
from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from tfs_proxy.run.gpus import Devices
from tfs_proxy.run.host.limits import Limits
from tfs_proxy.run.host.processes import RunningProcess, before_exec, describe_exit
from tfs_proxy.run.host.waiting import unless_set, while_watched
from tfs_proxy.run.logs import ChildOutput, Show, log_event
from tfs_proxy.values.errors import NotEnoughResources, ProcessGaveUp, StopServing
from tfs_proxy.values.processes import growing_pause
from tfs_proxy.wire.shortages import shortage

log = logging.getLogger(__name__)

LAST_LINES = 40
KILLED_SECONDS = 1.0
LOOK_SECONDS = 0.01
NOT_STARTED = 127
"""The exit status of a program that could not be run, as in shells."""


class ProcessState(Enum):
    """States of a child."""

    STOPPED = "stopped"
    RUNNING = "running"
    BACKOFF = "backing off"
    STOPPING = "stopping"
    EXITED = "exited"
    GAVE_UP = "gave up"


class Backoff(Struct, frozen=True):
    """Pauses between restarts: the delay doubles per early death, up to a cap of tries.

    A child that lived ``healthy_seconds`` starts counting anew.
    """

    first_seconds: float = 0.05
    longest_seconds: float = 10.0
    tries: int = 10
    healthy_seconds: float = 10.0

    def deaths_in_a_row(self, before: int, lived_seconds: float) -> int:
        """The early deaths up to one that ended a life of so many seconds."""
        return 1 if lived_seconds >= self.healthy_seconds else before + 1

    def pause_seconds(self, deaths: int) -> float:
        """The pause after so many early deaths in a row."""
        return growing_pause(deaths, self.first_seconds, self.longest_seconds)


class ProcessSpec(Struct, frozen=True):
    """A program to run, and how to stop it."""

    name: str
    """Name in the log, such as "nginx"."""

    argv: tuple[str, ...]
    """Program and arguments."""

    env: Mapping[str, str]
    """Environment, in place of this process's own."""

    pass_fds: tuple[int, ...] = ()
    """Descriptors that are handed down under their own numbers."""

    stop_signal: signal.Signals = signal.SIGTERM
    """Signal that asks it to end."""

    survivors_signal: signal.Signals = signal.SIGTERM
    """Signal for the rest of its process group when the leader died alone."""

    orphaned_signal: signal.Signals = signal.SIGKILL
    """Signal that it gets when this process has died."""

    ends_itself: bool = False
    """True if its end is no fault, whatever its exit status."""

    drops_output: bool = False
    """True if it loses lines of its log rather than wait for the supervisor to read them."""

    backoff: Backoff = field(default_factory=Backoff)
    """Pauses between restarts, and their number."""

    def named(self, of: str) -> "ProcessSpec":
        """This process with ``of`` after its name, which distinguishes it from those of other models."""
        return replace(self, name=f"{self.name} of {of}") if of else self


Spawn = Callable[[ProcessSpec, int], Awaitable[RunningProcess]]


async def spawn(spec: ProcessSpec, output: int) -> RunningProcess:
    """Starts ``spec`` in a process group of its own: the keyboard's Ctrl-C does not reach it.

    It prints to the descriptor ``output``.
    """
    return await asyncio.create_subprocess_exec(
        *spec.argv,
        env=dict(spec.env),
        pass_fds=spec.pass_fds,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        process_group=0,
        preexec_fn=before_exec(spec.orphaned_signal),
    )


class ChildProcess:
    """One supervised child.

    ``run`` lasts as long as the child may be restarted: ``may_restart`` is called after each death,
    ``started`` with each new pid, which is also that of its process group; ``heard`` with each line that it
    prints, and ``show``, which logs them, with each line or the lines of a traceback.
    ``describe`` puts an exit status into words.
    ``stop`` ends it within a deadline. Both leave the state at EXITED or GAVE_UP.
    """

    def __init__(
        self,
        spec: ProcessSpec,
        *,
        may_restart: "Callable[[ChildProcess], bool]" = lambda _child: True,
        started: Callable[[int], None] = lambda _pid: None,
        heard: Callable[[str], None] = lambda _line: None,
        show: Show = log_event,
        start: Spawn = spawn,
        describe: Callable[[int | None], str] = describe_exit,
    ) -> None:
        self.spec = spec
        self.state = ProcessState.STOPPED
        self.starts = 0
        self.exit_status: int | None = None
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self._started = started

        def hear_all(lines: list[str]) -> None:
            for line in lines:
                self.last_lines.append(line)
                heard(line)
            show(self.name, self.pid, lines)

        self._output = ChildOutput(hear_all, drops=spec.drops_output)
        self._may_restart = may_restart
        self._spawn = start
        self._describe = describe
        self._process: RunningProcess | None = None
        self._ended = asyncio.Event()
        self._stop_asked = asyncio.Event()
        self._groups: set[int] = set()

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self.state is ProcessState.RUNNING else None

    async def run(self) -> None:
        """Starts the child and restarts it until it is stopped or gives up."""
        deaths = 0
        backoff = self.spec.backoff
        try:
            while not self._stop_asked.is_set():
                lived_seconds = await self._live()
                if self._stop_asked.is_set():
                    break
                if self.spec.ends_itself:
                    self.state = ProcessState.STOPPING
                    break
                deaths = backoff.deaths_in_a_row(deaths, lived_seconds)
                if deaths > backoff.tries or not self._may_restart(self):
                    self.state = ProcessState.GAVE_UP
                    log.error("%s ended with %s", self.name, self._describe(self.exit_status))
                    return
                self.state = ProcessState.BACKOFF
                pause_seconds = backoff.pause_seconds(deaths)
                why = self._describe(self.exit_status)
                log.warning("%s ended with %s, starting it again in %.2f s", self.name, why, pause_seconds)
                self.signal_group(self.spec.survivors_signal)
                await unless_set(self._stop_asked, asyncio.sleep(pause_seconds))
            self.state = ProcessState.EXITED
        finally:
            self._output.close()
            self._ended.set()

    async def _live(self) -> float:
        """One life of the child, from start to exit; returns its length in seconds."""
        began = time.monotonic()
        self.state = ProcessState.RUNNING
        self.starts += 1
        try:
            process = await unless_set(self._stop_asked, self._spawn(self.spec, self._output.write_end()))
        except (OSError, RuntimeError) as error:  # the latter: asyncio gets no thread for it
            self.last_lines.append(shortage(error) or str(error))
            log.error("%s can't be started: %s", self.name, self.last_lines[-1])  # noqa: TRY400 - it says it all
            self.exit_status = NOT_STARTED
            return 0.0
        if process is None:
            return 0.0
        self._process = process
        log.debug("%s: pid %d: %s", self.name, process.pid, shlex.join(self.spec.argv))
        self._groups.add(process.pid)
        self._started(process.pid)
        if self.state is ProcessState.STOPPING:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(self.spec.stop_signal)
        self.exit_status = await process.wait()
        self._output.read_rest()
        return time.monotonic() - began

    async def ended(self) -> int:
        """Waits until it has ended for good; returns its exit status."""
        await self._ended.wait()
        return NOT_STARTED if self.exit_status is None else self.exit_status

    def ask_to_stop(self) -> None:
        """Sends the stop signal, without waiting; idempotent."""
        self._stop_asked.set()
        if self.state is ProcessState.RUNNING:
            self.send_signal(self.spec.stop_signal)
            self.state = ProcessState.STOPPING

    def send_signal(self, number: signal.Signals) -> None:
        """Signals the child itself, if it runs."""
        if self.state is ProcessState.RUNNING and self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def kill(self) -> None:
        """Ends it and all that it has started at once, for good."""
        self.ask_to_stop()  # else it would be started again
        self.signal_group(signal.SIGKILL)

    async def stop(self, deadline_seconds: float) -> None:
        """Stop signal, wait until the deadline, SIGKILL to the whole group; idempotent."""
        self.ask_to_stop()
        if self.state is not ProcessState.STOPPED:
            try:
                async with asyncio.timeout(max(deadline_seconds, 0.01)):
                    await self._ended.wait()
            except TimeoutError:
                log.warning("%s did not stop within %.1f s, killing it", self.name, deadline_seconds)
                self.signal_group(signal.SIGKILL)
                await self._ended.wait()
        # Nobody looks at the groups afterwards: they are killed, and have a moment to end.
        self.signal_group(signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILLED_SECONDS):
                while self._groups:
                    self.reap_orphans()
                    await asyncio.sleep(LOOK_SECONDS)

    def signal_group(self, number: signal.Signals) -> None:
        """Signals this child and every process that it has left behind."""
        self._signal(self._groups, number)

    def _signal(self, groups: Iterable[int], number: int) -> None:
        """Signals process groups; forgets those that have ended."""
        for group in tuple(groups):
            try:
                os.killpg(group, number)
            except ProcessLookupError:
                self._groups.discard(group)
            except PermissionError:
                if number:
                    log.warning("%s: not allowed to signal process group %d", self.name, group)

    def reap_orphans(self) -> None:
        """Collects processes of former groups that became our children; forgets empty groups."""
        lives = self.state in {ProcessState.RUNNING, ProcessState.STOPPING}
        former = self._groups - {self._process.pid if self._process and lives else None}
        for group in former:
            with contextlib.suppress(ChildProcessError):
                while os.waitid(os.P_PGID, group, os.WEXITED | os.WNOHANG):
                    pass
        self._signal(former, 0)  # which only asks whether the group still has a process


TICK_SECONDS = 0.05
IDLE_TICK_SECONDS = 1.0
"""While nothing happens, the processes are checked this rarely: a check takes 0.3 ms."""

TICK_GROWTH = 1.5


class Deaths:
    """Counts of ends by name of the child and how it ended; ``limits`` knows those for want of something."""

    def __init__(self, limits: Limits) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.limits = limits


Tick = Callable[[], bool | None]
"""Called at each look at the processes; returns true if the next one should come soon."""


class Children(ABC):
    """The children of the front or of a stack; ``deaths`` counts those that have died."""

    def __init__(self, deaths: Deaths, tick: Tick = lambda: None) -> None:
        self.deaths = deaths
        self.devices = Devices()
        self._tick = tick
        self._tasks: set[asyncio.Task[None]] = set()
        self.stirred = asyncio.Event()

    def start(self, spec: ProcessSpec, spawn: Spawn = spawn, show: Show = log_event) -> ChildProcess:
        child = ChildProcess(
            spec,
            may_restart=self._may_restart,
            started=lambda _pid: self.stirred.set(),
            heard=partial(self._hear, spec.name),
            show=show,
            start=spawn,
            describe=self.deaths.limits.describe,
        )
        task = asyncio.create_task(child.run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _task: self.stirred.set())
        return child

    def _hear(self, name: str, line: str) -> None:
        """Notes what a child has printed."""
        self.devices.hear(name, line)

    @abstractmethod
    def in_start_order(self) -> list[ChildProcess]:
        """All children that have been started; they are stopped in reverse order."""

    def down(self) -> frozenset[str]:
        """Names of those that are being restarted."""
        return frozenset(child.name for child in self.in_start_order() if self._is_down(child))

    async def watch_during(self, work: Awaitable[None]) -> None:
        """Awaits ``work``. Raises StopServing as soon as a process gives up."""

        async def until_one_gives_up() -> None:
            pause_seconds = TICK_SECONDS
            while True:
                self.stirred.clear()
                longer_seconds = min(pause_seconds * TICK_GROWTH, IDLE_TICK_SECONDS)
                pause_seconds = TICK_SECONDS if self._look() else longer_seconds
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_seconds):
                        await self.stirred.wait()

        await while_watched(work, until_one_gives_up())

    def _look(self) -> bool:
        """Looks once; True if the next look should come soon. Raises StopServing if a process gave up."""
        for child in self.in_start_order():
            child.reap_orphans()
            if child.state is ProcessState.GAVE_UP:
                raise self._reason_to_stop(child)
        return bool(self._tick()) or bool(self.down())

    def _is_down(self, child: ChildProcess) -> bool:
        return child.state is ProcessState.BACKOFF

    def _may_restart(self, child: ChildProcess) -> bool:
        self.stirred.set()
        self.deaths.counts[child.name, describe_exit(child.exit_status)] += 1
        return True

    def _reason_to_stop(self, child: ChildProcess) -> StopServing:
        how = describe_exit(child.exit_status)
        shortage = self.deaths.limits.shortage(child.exit_status)
        text = f"{child.name} ended with {how} too often ({child.starts} starts){shortage}."
        return NotEnoughResources(text) if shortage else ProcessGaveUp(text)
