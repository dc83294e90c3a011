"""One serving stack: opens the archive, starts every process, reports readiness, drains at the end.

start-up: cli -> settings -> archive -> supervisor.plan -> supervisor.process -> readiness
"""

import asyncio
import logging
import os
import signal
import socket
import time
from contextlib import ExitStack
from dataclasses import replace

from tfs_proxy.capture.counts import CaptureCounter
from tfs_proxy.capture.files import check_folder
from tfs_proxy.capture.options import described
from tfs_proxy.errors import ModelLoadError, StartTimeout
from tfs_proxy.layout import Workspace
from tfs_proxy.observe.logs.access import RequestLine
from tfs_proxy.observe.logs.config import STDERR
from tfs_proxy.observe.logs.entry import COMMAND
from tfs_proxy.observe.model_counts import KnownModels
from tfs_proxy.observe.request_counts import FinishedRequest
from tfs_proxy.report.first_request import FirstRequest, ready_line
from tfs_proxy.report.prepare import Prepared
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor import plan
from tfs_proxy.supervisor.children import TICK_SECONDS, Children
from tfs_proxy.supervisor.control_api import ControlApi
from tfs_proxy.supervisor.hanging_calls import HangingCalls
from tfs_proxy.supervisor.host import sockets
from tfs_proxy.supervisor.host.watchdog import Watchdog, guarded_workspace
from tfs_proxy.supervisor.logs.request_lines import RequestLines
from tfs_proxy.supervisor.logs.run_log import RunLog, log_config
from tfs_proxy.supervisor.metrics import RunMetrics
from tfs_proxy.supervisor.model_states import ModelWatch
from tfs_proxy.supervisor.nginx import config as nginx
from tfs_proxy.supervisor.nginx.proxy import NginxProxy, refuse_grpc_without_nginx
from tfs_proxy.supervisor.opening import ServeRequest, find_host_resources, open_archive, plan_processes
from tfs_proxy.supervisor.programs import gunicorn, packages
from tfs_proxy.supervisor.readiness import Heartbeats, Phase, Readiness
from tfs_proxy.supervisor.request_counter import RequestCounter
from tfs_proxy.supervisor.run_loop import RunLoop
from tfs_proxy.supervisor.scraping.outside import OutsideMetrics
from tfs_proxy.supervisor.scraping.worker_threads import WorkerThreads

log = logging.getLogger(__name__)

NO_NGINX = (
    "no nginx in front: the workers listen on the port themselves. Without it there is no gRPC port, no "
    "answer to /ping while all threads are busy, no fast path for JSON, and no second try if a worker dies"
)
BUSY_BEAT_SECONDS = 10.0
LAST_STEPS_SECONDS = 3.0


async def serve(settings: Settings, listener: socket.socket, request: ServeRequest) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP; returns 0 then.

    Raises StopServing if the run can't begin or go on. ``listener`` is closed at the end.
    """
    with guarded_workspace(settings.home) as (workspace, watchdog), ExitStack() as held:
        return await Supervisor(settings, listener, request, workspace, watchdog, held).run()


class Supervisor:
    """One run: everything between the open port and the exit status; ``held`` keeps ports for children."""

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        request: ServeRequest,
        workspace: Workspace,
        watchdog: Watchdog,
        held: ExitStack,
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._request = request
        self._workspace = workspace
        self._held = held
        self._log_descriptor = os.dup(STDERR)
        config = log_config(settings, request.environ, self._log_descriptor)
        run_log = RunLog(workspace.logging, config, lambda: int(listener.getsockname()[1]))
        self._started_at = time.monotonic()
        self._readiness = Readiness(_heartbeats(settings))
        self._children = Children(
            self._readiness, workspace, watchdog, own_exit_status=request.flags is not None
        )
        self._requests = RequestCounter(workspace.requests, workspace.stages)
        self._request_lines = RequestLines(workspace.access, settings.access_log)
        self._children.log.of_request = self._request_lines.hold
        self._request_lines.catch_up = self._children.read_errors_of_nginx
        threads = WorkerThreads(self._readiness.heartbeats, workspace.journal, settings.gunicorn_threads)
        self._outside = OutsideMetrics()
        self._captured = CaptureCounter(workspace.capture_counts)
        self._metrics = RunMetrics(
            self._readiness,
            self._children,
            workspace.journal,
            threads.measure,
            self._outside.measure,
            self._requests.measure,
            self._captured.measure,
        )
        self._control_api = ControlApi(self._readiness, self._metrics.measure, self._outside)
        self._control_api.log_level = run_log.respond
        self._run_loop = RunLoop(settings.stop_seconds)
        self._children.each_tick = self._tick
        self._proxy: NginxProxy | None = None
        self._web: tuple[socket.socket, ...] = (listener,)
        self._gpus = 0

    async def run(self) -> int:
        """Start, serve, drain."""
        await self._run_loop.run(self._start_and_watch(), self._drain)
        return 0

    async def _start_and_watch(self) -> None:
        await self._open_listeners()
        prepared = await self._open_archive()
        host = find_host_resources(self._request, prepared, self._held)
        planned = plan_processes(prepared, self._workspace, host, self._listener)
        self._gpus = host.gpus
        self._expect(planned)
        watch = ModelWatch(planned.deployment.instances, planned.deployment.models, self._readiness)
        await self._start_in_time(planned, prepared, watch)
        if self._proxy is not None and self._children.nginx is not None:
            await self._children.watch_during(self._proxy.reload(self._children.nginx, planned.deployment))
        self._begin_serving(prepared.first_request)
        await self._children.watch_during(watch.forever())

    async def _open_listeners(self) -> None:
        """From here on every request gets an answer."""
        await self._control_api.open(self._workspace.control_socket)
        await self._readiness.heartbeats.listen(self._workspace.heartbeat_socket)
        nginx_program = nginx.find() if self._settings.nginx else None
        if nginx_program is None:
            refuse_grpc_without_nginx(self._settings)
            log.warning("%s", NO_NGINX)
            self._control_api.count_early = self._note_early
        else:
            self._start_nginx(nginx_program)
        await self._control_api.stand_in(self._web)
        log.info("listening on http://%s", sockets.shown_address(self._listener))

    def _note_early(self, request: FinishedRequest, request_id: str) -> None:
        """Count and log a request that is answered before workers can."""
        self._requests.counts.add(request)
        self._request_lines.log.show(RequestLine(request, request_id), COMMAND)

    def _start_nginx(self, program: str) -> None:
        count = gunicorn.listeners(self._settings)
        self._web = tuple(sockets.listen(sockets.LOOPBACK, 0) for _ in range(count))
        self._proxy = NginxProxy(program, self._settings, self._workspace, self._listener, self._web)
        self._children.nginx = self._children.start(self._proxy.spec(self._request.environ))

    async def _open_archive(self) -> Prepared:
        self._readiness.step = "starting: opening the model archive"
        prepared = await open_archive(self._request, self._settings, self._workspace)
        self._size_for(prepared.settings)
        return prepared

    def _size_for(self, settings: Settings) -> None:
        """Large models may leave memory for fewer workers: nginx forgets the sockets of the others."""
        self._settings = settings
        self._readiness.heartbeats.hanging_calls.workers = settings.gunicorn_workers
        if self._proxy is not None:
            count = gunicorn.listeners(settings)
            self._web, surplus = self._web[:count], self._web[count:]
            self._proxy.web = self._web
            for listener in surplus:
                listener.close()

    def _expect(self, planned: plan.ProcessPlan) -> None:
        deployment = planned.deployment
        if deployment.capture is not None:
            check_folder(deployment.capture)
            log.info("%s", described(deployment.capture))
        self._control_api.deployment = replace(deployment, counts_requests=self._proxy is None)
        self._requests.expect(KnownModels(deployment.default_model, deployment.models))
        self._children.script = deployment.script
        self._children.worker_count = self._settings.gunicorn_workers
        self._readiness.expect(deployment.instances, deployment.models)
        self._outside.model_servers.begin(deployment.instances, planned.metrics_path)

    async def _start_in_time(self, planned: plan.ProcessPlan, prepared: Prepared, watch: ModelWatch) -> None:
        # With flags, the model server follows its folders, which may still be filled: there is no limit.
        limit_seconds = self._settings.wait_time_seconds if self._request.flags is None else None
        try:
            async with asyncio.timeout(limit_seconds):
                await self._children.watch_during(self._become_ready(planned, prepared, watch))
        except TimeoutError:
            raise StartTimeout(
                f"not ready within SAGEMAKER_TFS_WAIT_TIME_SECONDS={self._settings.wait_time_seconds:g}: "
                f"{self._readiness.missing() or self._readiness.step}{self._where_scripts_load()}."
            ) from None

    def _where_scripts_load(self) -> str:
        lines = sorted(set(self._readiness.heartbeats.hanging_calls.loading.values()))
        return f"; the script is at {' and at '.join(lines)}" if lines else ""

    async def _become_ready(self, planned: plan.ProcessPlan, prepared: Prepared, watch: ModelWatch) -> None:
        """Load models, and install and import the script at the same time."""
        self._readiness.step = f"starting: loading the {'models' if planned.model_servers else 'script'}"
        self._children.model_servers = [self._children.start(spec) for spec in planned.model_servers]
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._start_workers(prepared))
                group.create_task(self._models_available(watch))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        self._readiness.step = "starting: waiting for a worker"
        await self._readiness.heartbeats.booted.wait()

    async def _models_available(self, watch: ModelWatch) -> None:
        await watch.until_available()
        failure = self._readiness.failure()
        if failure:
            raise ModelLoadError(f"{failure}.")
        if self._children.model_servers:
            log.info("all models are available after %.2f s", time.monotonic() - self._started_at)

    async def _start_workers(self, prepared: Prepared) -> None:
        install = packages.plan_install(
            prepared.served.layout, self._workspace, prepared.settings, self._request.environ
        )
        if install is not None:
            log.info("installing %s", prepared.served.layout.requirements.name)
            await packages.run(install)
        paths = [install.site_packages] if install is not None else []
        unusable = packages.noexec_warning([*paths, prepared.served.layout.code])
        if unusable:
            log.warning("%s", unusable)
        for listener in self._web:
            listener.set_inheritable(True)
        descriptors = [listener.fileno() for listener in self._web]
        spec = gunicorn.process(
            self._settings, self._workspace, descriptors, paths, self._request.environ, self._log_descriptor
        )
        self._children.workers = self._children.start(spec)

    def _begin_serving(self, first: FirstRequest) -> None:
        """From here on /ping answers 200."""
        self._readiness.phase = Phase.SERVING
        self._readiness.steps.end()
        self._open_grpc_gates()
        self._control_api.release()
        self._outside.warm_up()
        for server in self._children.model_servers:
            self._children.devices.log(server.name, self._gpus)
        url = sockets.local_url(self._listener)
        log.info("%s", ready_line(url, first.command(url)))

    def _tick(self) -> None:
        self._open_grpc_gates()
        self._read_lines()

    def _read_lines(self) -> None:
        """Count and log what nginx and the workers have written since the last time."""
        self._requests.read()
        self._captured.read()
        self._request_lines.read()

    async def _keep_reading(self) -> None:
        while True:
            self._read_lines()
            await asyncio.sleep(TICK_SECONDS)

    def _open_grpc_gates(self) -> None:
        if self._proxy is not None and self._proxy.grpc_listener is not None:
            self._proxy.open_grpc_gates_of(self._readiness.loaded())

    async def _drain(self, stop_requested: bool) -> None:
        """Stop accepting, let requests finish, then end the rest in reverse order; bounded in time."""
        starting = self._readiness.phase is Phase.STARTING
        deadline = time.monotonic() + (LAST_STEPS_SECONDS if starting else self._settings.stop_seconds)
        self._readiness.phase = Phase.STOPPING
        if stop_requested:
            await self._run_loop.accept_pending(self._entrances(), deadline)
        self._listener.close()
        if self._proxy is not None:
            self._proxy.close()
        for server in self._children.model_servers if starting else ():
            server.ask_to_stop()
            server.signal_group(signal.SIGKILL)  # one that is still loading would finish that first
        reading = asyncio.create_task(self._keep_reading())
        try:
            await self._run_loop.stop(self._stop_children(deadline), self._children.in_start_order())
        finally:
            reading.cancel()
        for listener in self._web:
            listener.close()
        self._control_api.close()
        self._request_lines.close()
        os.close(self._log_descriptor)

    def _entrances(self) -> list[socket.socket]:
        """The open listeners that clients connect to."""
        grpc = self._proxy.grpc_listener if self._proxy is not None else None
        return [entrance for entrance in (self._listener, grpc) if entrance and entrance.fileno() >= 0]

    async def _stop_children(self, deadline: float) -> None:
        for child in (self._children.nginx, self._children.workers):
            if child is not None:
                await child.stop(deadline - time.monotonic())
        seconds_left = max(deadline - time.monotonic(), LAST_STEPS_SECONDS)
        await asyncio.gather(*(server.stop(seconds_left) for server in self._children.model_servers))


def _heartbeats(settings: Settings) -> Heartbeats:
    """A thread worker beats every second; the others stay silent while they answer a request."""
    limit_seconds = float(settings.gunicorn_timeout_seconds)
    if settings.gunicorn_worker_class == "gthread":
        limit_seconds = min(BUSY_BEAT_SECONDS, limit_seconds)
    replaced_seconds = settings.wait_time_seconds + settings.script_timeout_seconds
    return Heartbeats(limit_seconds, hanging_calls=HangingCalls(settings.gunicorn_workers, replaced_seconds))
