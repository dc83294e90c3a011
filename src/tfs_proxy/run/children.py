"""All child processes of one run: start them, watch them, and end the run if one gives up."""

import asyncio
import contextlib
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

from tfs_proxy.model.report.prepare import without_workspace
from tfs_proxy.run.gpus import Devices
from tfs_proxy.run.host.load_priority import LoadPriority
from tfs_proxy.run.host.processes import describe_exit, shell_status
from tfs_proxy.run.host.watchdog import Watchdog
from tfs_proxy.run.logs.request_lines import ChildLog
from tfs_proxy.run.process import ChildProcess, ProcessSpec, ProcessState, Spawn, spawn
from tfs_proxy.run.programs import gunicorn
from tfs_proxy.run.readiness import Phase, Readiness
from tfs_proxy.run.run_loop import cancel
from tfs_proxy.values.deployment import BootFailure
from tfs_proxy.values.errors import (
    ModelLoadError,
    ModelServerEnded,
    ProcessGaveUp,
    ScriptLoadError,
    StopServing,
)
from tfs_proxy.values.layout import Workspace

log = logging.getLogger(__name__)

TICK_SECONDS = 0.05
IDLE_TICK_SECONDS = 1.0
"""While nothing happens, the processes are checked this rarely: a check takes 0.3 ms."""

TICK_GROWTH = 1.5
SPARE_WORKERS = 3
"""The start fails if this many workers more than configured end while they load the application."""


class Children:
    """The model servers, gunicorn, the gRPC router and nginx; the model servers run on ``devices``.

    ``deaths`` counts by name of the child and how it ended. ``beside_workers`` are gunicorns that don't serve
    yet, or finish their last requests.

    ``each_tick`` is called at each look, and returns true if the next one should come soon.

    With ``own_exit_status`` a model server that ends during the start ends the run with its exit status; with
    a ``priority`` what is started then begins at low priority, until `restore_priority`.
    """

    def __init__(
        self,
        readiness: Readiness,
        workspace: Workspace,
        watchdog: Watchdog,
        *,
        own_exit_status: bool,
        priority: LoadPriority | None = None,
    ) -> None:
        self.model_servers: list[ChildProcess] = []
        self.workers: ChildProcess | None = None
        self.beside_workers: list[ChildProcess] = []
        self.grpc_router: ChildProcess | None = None
        self.nginx: ChildProcess | None = None
        self.devices = Devices()
        self.log = ChildLog()
        self.deaths: Counter[tuple[str, str]] = Counter()
        self.script: str | None = None
        self.logged_failure: BootFailure | None = None
        self.tick_seconds = TICK_SECONDS
        self.each_tick: Callable[[], bool | None] = lambda: None
        self.model_server_died: Callable[[ChildProcess], None] = lambda _child: None
        self._readiness = readiness
        self._workspace = workspace
        self._watchdog = watchdog
        self._own_exit_status = own_exit_status
        self._priority = priority
        self._tasks: set[asyncio.Task[None]] = set()
        self._stirred = asyncio.Event()

    def start(self, spec: ProcessSpec, spawn: Spawn = spawn) -> ChildProcess:
        child = ChildProcess(
            spec,
            may_restart=self._may_restart,
            started=self._begun,
            ended=self._watchdog.forget,
            heard=partial(self.devices.hear, spec.name),
            show=self.log.show,
            start=spawn,
        )
        task = asyncio.create_task(child.run())
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)
        return child

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._stirred.set()

    def start_beside(self, spec: ProcessSpec) -> ChildProcess:
        """Starts another gunicorn, which does not serve yet and is not restarted if it ends."""
        child = self.start(spec)
        self.beside_workers.append(child)
        return child

    def exchange_workers(self, new: ChildProcess) -> None:
        """Makes a gunicorn of `start_beside` the one that serves, and the former one a second one."""
        self.beside_workers.remove(new)
        if self.workers is not None:
            self.beside_workers.append(self.workers)
        self.workers = new

    def serves(self, group: str) -> bool:
        """True if the gunicorn of this process group is the one that serves."""
        return self.workers is not None and str(self.workers.pid) == group

    def succeed(self, before: "Children") -> None:
        """Takes over from ``before`` what the run has once, and its counts; the rest stays there."""
        self.nginx, before.nginx = before.nginx, None
        self.grpc_router, before.grpc_router = before.grpc_router, None
        self.each_tick, before.each_tick = before.each_tick, self.each_tick
        self.log = before.log
        self.deaths.update(before.deaths)
        before.deaths = self.deaths

    async def stop_beside(self, child: ChildProcess, seconds: float) -> None:
        """Ends a gunicorn that does not serve, within so many seconds."""
        await child.stop(seconds)
        if child in self.beside_workers:
            self.beside_workers.remove(child)

    def lower_priority(self, pid: int) -> None:
        """Lowers the priority of a process that ends before the models are ready."""
        if self._priority is not None:
            self._priority.lower(pid)

    def restore_priority(self) -> None:
        """Gives processes that have loaded at low priority the normal one."""
        if self._priority is not None:
            self._priority.restore(child.pid for child in self.in_start_order() if child.pid)

    def in_start_order(self) -> list[ChildProcess]:
        """All children that have been started; they are stopped in reverse order."""
        children = [*self.model_servers, self.workers, self.grpc_router, self.nginx]
        return [child for child in children if child is not None]

    def all(self) -> list[ChildProcess]:
        """Those in start order, and gunicorns that do not serve."""
        return [*self.in_start_order(), *self.beside_workers]

    async def watch_during(self, work: Awaitable[None]) -> None:
        """Awaits ``work``. Raises StopServing as soon as a process gives up."""
        doing = asyncio.ensure_future(work)
        watching = asyncio.create_task(self._until_one_gives_up())
        try:
            await asyncio.wait({doing, watching}, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                doing.result()
            else:
                watching.result()
        finally:
            await cancel(doing, watching)

    async def _until_one_gives_up(self) -> None:
        pause_seconds = self.tick_seconds
        while True:
            self._stirred.clear()
            self._refuse_failed_script()
            self._log_failed_worker()
            self._watchdog.look()
            children = self.in_start_order()
            for child in children:
                child.reap_orphans()
                if child.state is ProcessState.GAVE_UP:
                    raise self._reason_to_stop(child)
            for beside in self.beside_workers:
                beside.reap_orphans()
            backing_off = [child for child in children if child.state is ProcessState.BACKOFF]
            # A 503 of /ping makes SageMaker replace the container, which serves HTTP without the router.
            self._readiness.down = {child.name for child in backing_off if child is not self.grpc_router}
            soon = self.each_tick() or self._is_changing()
            pause_seconds = self.tick_seconds if soon else min(pause_seconds * TICK_GROWTH, IDLE_TICK_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_seconds):
                    await self._stirred.wait()

    def _is_changing(self) -> bool:
        return (
            self._readiness.phase is not Phase.SERVING
            or self._readiness.disturbed.is_set()
            or bool(self.beside_workers or self._readiness.down)
        )

    def _begun(self, pid: int) -> None:
        self._stirred.set()
        self._watchdog.guard(pid)
        if self._priority is not None and self._readiness.phase is Phase.STARTING:
            self._priority.lower_until_ready(pid)

    def read_errors_of_nginx(self) -> None:
        """Reads what nginx has written to its error log so far."""
        if self.nginx is not None:
            self.nginx.read_output()

    def _may_restart(self, child: ChildProcess) -> bool:
        """A model server or a script that fails during the start is not restarted."""
        self._stirred.set()
        if child in self.beside_workers:
            return False
        self.deaths[child.name, describe_exit(child.exit_status)] += 1
        if child is self.workers:
            self._readiness.heartbeats.forget()
        starting = self._readiness.phase is Phase.STARTING
        if child in self.model_servers:
            self._readiness.lose(self.model_servers.index(child))
            self.model_server_died(child)
            return not starting
        failed_to_boot = child is self.workers and child.exit_status in gunicorn.BOOT_FAILED
        return not (starting and failed_to_boot)

    def _log_failed_worker(self) -> None:
        """Logs once why one of several workers can't load the application."""
        failure = self._readiness.heartbeats.failure
        if failure in {None, self.logged_failure} or self._readiness.phase is Phase.STARTING:
            return
        if failure is not None and not self.beside_workers:  # else somebody may wait for it
            self.logged_failure = failure
            lines = "\n".join(filter(None, (failure.report, failure.text)))
            log.error("%s", without_workspace(lines, self._workspace))

    def _refuse_failed_script(self) -> None:
        """During the start, raises ScriptLoadError if workers can't load the script, or end meanwhile."""
        if self._readiness.phase is not Phase.STARTING:
            return
        heartbeats = self._readiness.heartbeats
        if len(heartbeats.loading) > heartbeats.wanted + SPARE_WORKERS:
            raise self.ended_by_import()
        failure = heartbeats.failure
        if failure is None:
            return
        if failure.report:
            log.error("%s", without_workspace(failure.report, self._workspace))
        raise ScriptLoadError(without_workspace(failure.text, self._workspace))

    def _reason_to_stop(self, child: ChildProcess) -> StopServing:
        how = describe_exit(child.exit_status)
        if self._readiness.phase is Phase.STARTING and child in self.model_servers:
            if self._own_exit_status:
                return ModelServerEnded(f"{child.name} ended with {how}.", shell_status(child.exit_status))
            text = f"{child.name} ended with {how} while loading. {_last_output(child)}"
            return ModelLoadError(text, ended_with=child.exit_status)
        if child is self.workers and child.exit_status in gunicorn.BOOT_FAILED:
            return self.reason_of_failed_boot(child)
        return ProcessGaveUp(f"{child.name} ended with {how} too often ({child.starts} starts).")

    def reason_of_failed_boot(self, workers: ChildProcess) -> ScriptLoadError:
        """The error that a worker has reported; else how far the workers came, or gunicorn's output."""
        failure = self._readiness.heartbeats.failure
        if failure is not None:
            return ScriptLoadError(without_workspace(failure.text, self._workspace))
        if self._readiness.phase is Phase.STARTING and self._readiness.heartbeats.loading:
            return self.ended_by_import()
        text = f"no worker can start: {workers.name} ended with {describe_exit(workers.exit_status)}. "
        return ScriptLoadError(without_workspace(text + _last_output(workers), self._workspace))

    def ended_by_import(self) -> ScriptLoadError:
        """The error of a script that ends each worker that imports it."""
        script = without_workspace(self.script or "the application", self._workspace)
        return ScriptLoadError(f"{script} can't be imported: it ends the worker that imports it.")


def _last_output(child: ChildProcess) -> str:
    lines = [line for line in child.last_lines if line.strip()]
    errors = [line for line in lines if re.search(r"\b(Error|error:|Failed|failed|terminate)\b", line)]
    return "Its last output: " + " / ".join((errors or lines)[-3:]) if lines else "It printed nothing."
