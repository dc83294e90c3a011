"""The run loop: opens the archive, starts every process, says when all is ready, drains at the end.

start-up: cli -> settings -> archive -> supervisor.plan -> supervisor.process -> readiness
"""

import asyncio
import contextlib
import logging
import re
import shutil
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from tfs_proxy.errors import (
    ModelLoadError,
    ModelServerEnded,
    ProcessGaveUp,
    ScriptLoadError,
    StartTimeout,
    StopServing,
)
from tfs_proxy.first_request import FirstRequest, ready_line
from tfs_proxy.layout import Workspace
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor import gunicorn, intake, nginx, noexec, packages, plan, sockets
from tfs_proxy.supervisor.devices import Devices
from tfs_proxy.supervisor.door import Door
from tfs_proxy.supervisor.front import Front, refuse_grpc_without_nginx
from tfs_proxy.supervisor.hangs import Hangs
from tfs_proxy.supervisor.health import Health, Heartbeats, Phase
from tfs_proxy.supervisor.model_server import program
from tfs_proxy.supervisor.orphans import Orphans
from tfs_proxy.supervisor.prepare import Prepared, count_gpus, prepare, without_workspace
from tfs_proxy.supervisor.process import ChildProcess, ProcessSpec, State, describe_exit, shell_status
from tfs_proxy.supervisor.stop_signals import reason, stop_signals
from tfs_proxy.supervisor.watch import ModelWatch
from tfs_proxy.supervisor.watchdog import Watchdog
from tfs_proxy.supervisor.workspace import make_workspace

log = logging.getLogger(__name__)

TICK_SECONDS = 0.05
SPARE_WORKERS = 3
"""So many workers may end while they load the application before the start is given up."""
BUSY_BEAT_SECONDS = 10.0
LAST_STEPS_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for, beside the settings.

    ``flags`` are the model server's, which then stands in for tensorflow/serving, and there is no archive.
    """

    model: str | None
    model_server: str
    environ: Mapping[str, str]
    flags: tuple[str, ...] | None = None


async def serve(settings: Settings, listener: socket.socket, request: Request) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP; returns 0 then.

    Raises StopServing where the run can't begin or go on. ``listener`` is closed at the end.
    """
    workspace = Workspace(make_workspace(settings.home))
    watchdog = Watchdog(workspace.root)
    try:
        return await Supervisor(settings, listener, request, workspace, watchdog).run()
    finally:
        watchdog.close()
        shutil.rmtree(workspace.root, ignore_errors=True)


class Supervisor:
    """All processes of one run."""

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        request: Request,
        workspace: Workspace,
        watchdog: Watchdog,
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._request = request
        self._workspace = workspace
        self._watchdog = watchdog
        self._began = time.monotonic()
        hangs = Hangs(settings.gunicorn_workers, settings.wait_time_seconds + settings.script_timeout_seconds)
        self._health = Health(Heartbeats(_beat_limit_seconds(settings), hangs=hangs))
        self._door = Door(self._health)
        self._signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
        self._front: Front | None = None
        self._nginx: ChildProcess | None = None
        self._workers: ChildProcess | None = None
        self._model_servers: list[ChildProcess] = []
        self._devices = Devices()
        self._gpus = 0
        self._orphans = Orphans()
        self._web: tuple[socket.socket, ...] = (listener,)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """Start, serve, drain."""
        self._listen_for_signals()
        serving = asyncio.create_task(self._start_and_watch())
        stopping = asyncio.create_task(self._signals.get())
        try:
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
            else:
                log.info(
                    "%s, requests in flight have %g s",
                    reason(stopping.result()),
                    self._settings.stop_seconds,
                )
        finally:
            told_to_stop = not serving.done()
            await _cancel(serving, stopping)
            await self._drain(take_the_rest=told_to_stop)
        return 0

    def _listen_for_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in stop_signals():
            loop.add_signal_handler(number, self._signals.put_nowait, number)

    async def _start_and_watch(self) -> None:
        await self._open_doors()
        prepared = await self._open_archive()
        planned = self._plan(prepared)
        self._door.deployment = planned.deployment
        self._health.expect(planned.deployment.instances, planned.deployment.models)
        watch = ModelWatch(planned.deployment.instances, planned.deployment.models, self._health)
        try:
            async with asyncio.timeout(self._start_limit_seconds()):
                await self._first(self._become_ready(planned, prepared, watch))
        except TimeoutError:
            raise StartTimeout(
                f"not ready within SAGEMAKER_TFS_WAIT_TIME_SECONDS={self._settings.wait_time_seconds:g}: "
                f"{self._health.missing() or self._health.step}{self._where_scripts_load()}."
            ) from None
        if self._front is not None and self._nginx is not None:
            await self._first(self._front.reload(self._nginx, planned.deployment))
        self._begin_serving(prepared.first_request)
        await self._first(watch.forever())

    def _start_limit_seconds(self) -> float | None:
        """How long the start may take: as long as it takes if a model's folder may still be filled."""
        return self._settings.wait_time_seconds if self._request.flags is None else None

    def _where_scripts_load(self) -> str:
        places = sorted(set(self._health.heartbeats.hangs.loading.values()))
        return f"; the script is at {' and at '.join(places)}" if places else ""

    async def _open_doors(self) -> None:
        """From here on every request gets an answer."""
        await self._door.open(self._workspace.control_socket)
        await self._health.heartbeats.listen(self._workspace.heartbeat_socket)
        found = nginx.find() if self._settings.nginx else None
        if found is None:
            refuse_grpc_without_nginx(self._settings)
            log.info("no nginx in front: the workers listen on the port themselves")
        else:
            count = gunicorn.listeners(self._settings)
            self._web = tuple(sockets.listen(sockets.LOOPBACK, 0) for _ in range(count))
            self._front = Front(found, self._settings, self._workspace, self._listener, self._web)
            self._nginx = self._begin(self._front.spec(self._request.environ))
        await self._door.stand_in(self._web)
        log.info("listening on http://%s", sockets.shown_address(self._listener))

    async def _open_archive(self) -> Prepared:
        self._health.step = "starting: opening the model archive"
        prepared = await in_daemon_thread(self._prepare)
        for line in prepared.report:
            log.info("%s", line)
        for line in prepared.warnings:
            log.warning("%s", line)
        prepared.refuse_unusable_script()
        self._size_for(prepared.settings)
        return prepared

    def _size_for(self, settings: Settings) -> None:
        """Large models may leave memory for fewer workers: nginx is to forget the sockets of the others."""
        self._settings = settings
        self._health.heartbeats.hangs.workers = settings.gunicorn_workers
        if self._front is not None:
            count = gunicorn.listeners(settings)
            self._web, surplus = self._web[:count], self._web[count:]
            self._front.web = self._web
            for each in surplus:
                each.close()

    def _prepare(self) -> Prepared:
        request = self._request
        if request.flags is not None:
            from tfs_proxy.supervisor.drop_in import prepare_flags

            return prepare_flags(request.flags, self._settings)
        model = request.model or self._settings.model
        return prepare(model, self._settings, self._workspace, request.environ)

    def _plan(self, prepared: Prepared) -> plan.Plan:
        needs_host = prepared.models or prepared.flags
        host = self._host() if needs_host else plan.Host((), (), 0, self._request.environ)
        self._gpus = host.gpus
        if prepared.flags is not None:
            from tfs_proxy.supervisor.drop_in import plan_flags

            port = self._listener.getsockname()[1]
            return plan_flags(prepared.served, prepared.flags, self._settings, self._workspace, host, port)
        planned = plan.plan(prepared.models, prepared.served, self._settings, self._workspace, host)
        for path, text in planned.files.items():
            path.write_text(text)
        return planned

    def _host(self) -> plan.Host:
        return plan.Host(
            model_server=program(self._request.model_server),
            ports=sockets.model_server_ports(self._settings.safe_port_range, self._settings.instance_count),
            gpus=count_gpus(),
            environ=self._request.environ,
        )

    async def _become_ready(self, planned: plan.Plan, prepared: Prepared, watch: ModelWatch) -> None:
        """Load models, and install and import the script at the same time."""
        self._health.step = f"starting: loading the {'models' if planned.model_servers else 'script'}"
        self._model_servers = [self._begin(spec) for spec in planned.model_servers]
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._start_workers(prepared))
                group.create_task(self._models_available(watch))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        self._health.step = "starting: waiting for a worker"
        await self._health.heartbeats.booted.wait()

    async def _models_available(self, watch: ModelWatch) -> None:
        await watch.until_available()
        failure = self._health.failure()
        if failure:
            raise ModelLoadError(f"{failure}.")
        if self._model_servers:
            log.info("all models are available after %.2f s", time.monotonic() - self._began)

    async def _start_workers(self, prepared: Prepared) -> None:
        install = packages.plan_install(prepared.served.layout, self._workspace)
        if install is not None:
            log.info("installing %s", prepared.served.layout.requirements.name)
            await packages.run(install)
        paths = [install.site_packages] if install is not None else []
        unusable = noexec.warning([*paths, prepared.served.layout.code])
        if unusable:
            log.warning("%s", unusable)
        for each in self._web:
            each.set_inheritable(True)
        listening = [each.fileno() for each in self._web]
        spec = plan.workers(self._settings, self._workspace, listening, paths, self._request.environ)
        self._workers = self._begin(spec)

    def _begin(self, spec: ProcessSpec) -> ChildProcess:
        child = ChildProcess(
            spec,
            may_restart=self._may_restart,
            started=self._watchdog.guard,
            ended=self._watchdog.forget,
            heard=partial(self._devices.hear, spec.name),
        )
        task = asyncio.create_task(child.run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return child

    def _may_restart(self, child: ChildProcess) -> bool:
        """Before all is ready a model server or a script that fails ends the start."""
        if child is self._workers:
            self._health.heartbeats.forget()
        starting = self._health.phase is Phase.STARTING
        if child in self._model_servers:
            self._health.lose(self._model_servers.index(child))
            return not starting
        return not (starting and child is self._workers and child.exit_status in gunicorn.BOOT_FAILED)

    async def _first(self, work: Awaitable[None]) -> None:
        """Do ``work`` unless a process gives up before."""
        doing = asyncio.ensure_future(work)
        watching = asyncio.create_task(self._until_one_gives_up())
        try:
            await asyncio.wait({doing, watching}, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                doing.result()
            else:
                watching.result()
        finally:
            await _cancel(doing, watching)

    async def _until_one_gives_up(self) -> None:
        while True:
            self._refuse_failed_script()
            self._orphans.collect()
            self._watchdog.look()
            for child in self._children():
                child.reap_orphans()
                if child.state is State.GAVE_UP:
                    raise self._why_given_up(child)
            self._health.down = {child.name for child in self._children() if child.state is State.BACKOFF}
            self._open_gates()
            await asyncio.sleep(TICK_SECONDS)

    def _refuse_failed_script(self) -> None:
        """Raise ScriptLoadError if the workers of the start can't load the script, or end when they do."""
        if self._health.phase is not Phase.STARTING:
            return
        failure = self._health.heartbeats.failure
        if len(self._health.heartbeats.loading) > self._settings.gunicorn_workers + SPARE_WORKERS:
            raise ScriptLoadError(f"{self._script()} can't be imported: it ends the worker that imports it.")
        if failure is None:
            return
        if failure.report:
            log.error("%s", without_workspace(failure.report, self._workspace))
        raise ScriptLoadError(without_workspace(failure.text, self._workspace))

    def _script(self) -> str:
        path = self._door.deployment.script if self._door.deployment else None
        return without_workspace(path or "the application", self._workspace)

    def _open_gates(self) -> None:
        if self._front is not None and self._front.publishes_grpc:
            self._front.let_calls_through_to(self._health.loaded())

    def _children(self) -> list[ChildProcess]:
        """In order of start; stopping goes the other way."""
        named = [*self._model_servers, self._workers, self._nginx]
        return [child for child in named if child is not None]

    def _why_given_up(self, child: ChildProcess) -> StopServing:
        how = describe_exit(child.exit_status)
        if self._health.phase is Phase.STARTING and child in self._model_servers:
            if self._request.flags is not None:
                return ModelServerEnded(f"{child.name} ended with {how}.", shell_status(child.exit_status))
            return ModelLoadError(f"{child.name} ended with {how} while loading. {_last_words(child)}")
        if child is self._workers and child.exit_status in gunicorn.BOOT_FAILED:
            return ScriptLoadError("the script can't be used; what is wrong with it stands above.")
        return ProcessGaveUp(f"{child.name} ended with {how} too often ({child.starts} starts).")

    def _begin_serving(self, first: FirstRequest) -> None:
        """From here on /ping says 200."""
        self._health.phase = Phase.SERVING
        self._open_gates()
        self._door.release()
        for server in self._model_servers:
            self._devices.log(server.name, self._gpus)
        url = sockets.local_url(self._listener)
        log.info("%s", ready_line(url, first.command(url)))

    async def _drain(self, *, take_the_rest: bool) -> None:
        """Stop accepting, let requests finish, then end the rest in reverse order; bounded in time."""
        nothing_in_flight = self._health.phase is Phase.STARTING
        seconds = LAST_STEPS_SECONDS if nothing_in_flight else self._settings.stop_seconds
        deadline = time.monotonic() + seconds
        self._health.phase = Phase.STOPPING
        impatient = asyncio.create_task(self._signals.get())
        if take_the_rest:
            await intake.take_the_rest(
                self._entrances(),
                lambda: impatient.done() or time.monotonic() > deadline,
            )
        self._listener.close()
        if self._front is not None:
            self._front.close()
        for server in self._model_servers if nothing_in_flight else ():
            server.ask_to_stop()
            server.signal_group(signal.SIGKILL)  # one that still loads would go on until it has
        draining = asyncio.create_task(self._stop_children(lambda: deadline - time.monotonic()))
        await asyncio.wait({impatient, draining}, return_when=asyncio.FIRST_COMPLETED)
        if not draining.done():
            log.warning("%s again: not waiting any longer", impatient.result().name)
        for child in self._children() if not draining.done() else ():
            child.signal_group(signal.SIGKILL)
        await draining
        await _cancel(impatient)
        for each in self._web:
            each.close()
        self._door.close()

    def _entrances(self) -> list[socket.socket]:
        """The open listeners that clients come to."""
        grpc = self._front.grpc_listener if self._front is not None else None
        return [each for each in (self._listener, grpc) if each is not None and each.fileno() >= 0]

    async def _stop_children(self, seconds_left: Callable[[], float]) -> None:
        for child in (self._nginx, self._workers):
            if child is not None:
                await child.stop(seconds_left())
        await asyncio.gather(
            *(child.stop(max(seconds_left(), LAST_STEPS_SECONDS)) for child in self._model_servers)
        )


async def in_daemon_thread(work: Callable[[], Prepared]) -> Prepared:
    """Do blocking work beside the loop; cancelled, it is left behind and does not hold up the exit."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Prepared] = loop.create_future()

    def finish(result: Prepared | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if result is not None:
            done.set_result(result)
        else:
            done.set_exception(error or RuntimeError("no result"))

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - it is raised again in the loop
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(finish, result, failure)

    threading.Thread(target=run, name="archive", daemon=True).start()
    return await done


def _beat_limit_seconds(settings: Settings) -> float:
    """A thread worker beats every second; the others stay silent through one request."""
    if settings.gunicorn_worker_class == "gthread":
        return min(BUSY_BEAT_SECONDS, float(settings.gunicorn_timeout_seconds))
    return float(settings.gunicorn_timeout_seconds)


def _last_words(child: ChildProcess) -> str:
    lines = [line for line in child.last_lines if line.strip()]
    telling = [line for line in lines if re.search(r"\b(Error|error:|Failed|failed|terminate)\b", line)]
    return "It said: " + " / ".join((telling or lines)[-3:]) if lines else "It said nothing."


async def _cancel(
    *tasks: "asyncio.Future[object] | asyncio.Task[None] | asyncio.Task[signal.Signals]",
) -> None:
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task
