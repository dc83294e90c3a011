"""One serving stack: opens the archive, starts every process, reports readiness, drains at the end.

start-up: cli -> settings -> archive -> supervisor.plan -> supervisor.process -> readiness
"""

import asyncio
import logging
import socket
import time
from dataclasses import replace

from tfs_proxy.capture.files import check_folder
from tfs_proxy.capture.options import described
from tfs_proxy.deployment import Deployment
from tfs_proxy.grpc_router.options import OFF
from tfs_proxy.layout import Workspace
from tfs_proxy.observe.model_counts import KnownModels
from tfs_proxy.report.first_request import FirstRequest, ready_line
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor import plan
from tfs_proxy.supervisor.control_api import ControlApi
from tfs_proxy.supervisor.host import sockets
from tfs_proxy.supervisor.host.orphans import Orphans
from tfs_proxy.supervisor.host.watchdog import Watchdog, guarded_workspace
from tfs_proxy.supervisor.logs.run_records import RunRecords
from tfs_proxy.supervisor.metrics import RunMetrics
from tfs_proxy.supervisor.nginx import config as nginx
from tfs_proxy.supervisor.nginx.proxy import NginxProxy
from tfs_proxy.supervisor.open_inference.api import OpenInferenceApi
from tfs_proxy.supervisor.open_inference.repository import ServedArchive
from tfs_proxy.supervisor.opening import ServeRequest
from tfs_proxy.supervisor.process import spawn
from tfs_proxy.supervisor.programs import grpc_router, gunicorn
from tfs_proxy.supervisor.programs.grpc_gates import InstanceGates
from tfs_proxy.supervisor.readiness import Phase
from tfs_proxy.supervisor.reloading.reloading import Reloading, refuse_unusable_reload
from tfs_proxy.supervisor.run_loop import LAST_STEPS_SECONDS, RunLoop, together
from tfs_proxy.supervisor.scraping.outside import OutsideMetrics
from tfs_proxy.supervisor.scraping.worker_threads import WorkerThreads
from tfs_proxy.supervisor.stack import ServingStack, StackHost

log = logging.getLogger(__name__)

NO_NGINX = (
    "no nginx in front: the workers listen on the port themselves. Without it there is no "
    "answer to /ping while all threads are busy, no fast path for JSON, and no second try if a worker dies"
)


async def serve(settings: Settings, listener: socket.socket, request: ServeRequest) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP; returns 0 then.

    Raises SettingsError for a reload that can't be, StopServing if the run can't begin or go on. ``listener``
    is closed at the end.
    """
    if settings.reload:
        refuse_unusable_reload(settings, request)
    with guarded_workspace(settings.home) as (workspace, watchdog):
        return await Supervisor(settings, listener, request, workspace, watchdog).run()


class Supervisor:
    """One run: everything between the open port and the exit status."""

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        request: ServeRequest,
        workspace: Workspace,
        watchdog: Watchdog,
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._request = request
        self._workspace = workspace
        self._records = RunRecords(settings, request.environ, workspace, listener)
        self._reloading = Reloading(settings, workspace, request) if settings.reload else None
        spawn_workers = spawn if self._reloading is None else self._reloading.spawn
        host = StackHost(workspace, watchdog, self._records.log_descriptor, spawn_workers)
        self._stack = ServingStack(settings, request, host, (listener,))
        self._readiness = self._stack.readiness
        self._children = self._stack.children
        self._records.follow(self._children)
        threads = WorkerThreads(self._readiness.heartbeats, workspace.journal, settings.gunicorn_threads)
        self._outside = OutsideMetrics()
        self._metrics = RunMetrics(
            self._readiness,
            self._children,
            workspace.journal,
            threads.measure,
            self._outside.measure,
            self._records.measure,
        )
        self._control_api = self._make_control_api()
        self._orphans = Orphans()
        self._run_loop = RunLoop(settings.stop_seconds)
        self._children.each_tick = self._tick
        self._proxy: NginxProxy | None = None
        self._grpc_gates = InstanceGates(workspace, settings.instance_count)
        self._grpc_port: socket.socket | None = None  # held for the router if there is no nginx

    def _make_control_api(self) -> ControlApi:
        control_api = ControlApi(self._readiness, self._metrics.measure, self._outside)
        control_api.log_level = self._records.run_log.respond
        archive = ServedArchive(self._readiness, lambda: control_api.deployment)
        control_api.served_models = archive.served
        if self._settings.publishes_open_inference:
            control_api.open_inference = OpenInferenceApi(
                self._readiness, archive, self._records.times, self._settings.version_labels
            )
        return control_api

    async def run(self) -> int:
        """Start, serve, drain."""
        await self._run_loop.run(self._start_and_watch(), self._drain)
        return 0

    async def _start_and_watch(self) -> None:
        await self._open_listeners()
        prepared = await self._stack.open_archive()
        self._forget_surplus_listeners()
        planned = await self._stack.expect(prepared, self._listener.getsockname()[1])
        self._expect(planned)
        if self._reloading is not None:
            self._reloading.follow(prepared, self._stack)
        self._start_grpc_router(planned.deployment)
        await self._stack.start_in_time(planned, prepared)
        if self._children.grpc_router is not None:
            listens = sockets.until_it_listens(self._workspace.grpc_router_socket)
            await self._children.watch_during(listens)
            if self._grpc_port is not None:
                log.info("listening for gRPC on %s", sockets.shown_address(self._grpc_port))
        if self._proxy is not None and self._children.nginx is not None:
            await self._children.watch_during(self._proxy.reload(self._children.nginx, planned.deployment))
        self._begin_serving(prepared.first_request)
        if self._reloading is None:
            await self._stack.watch_forever()
        else:
            await together(self._stack.watch_forever(), self._reloading.run(self._children))

    async def _open_listeners(self) -> None:
        """From here on every request gets an answer."""
        await self._control_api.open(self._workspace.control_socket)
        await self._readiness.heartbeats.listen(self._workspace.heartbeat_socket)
        nginx_program = nginx.find() if self._settings.nginx else None
        if nginx_program is None:
            host = self._listener.getsockname()[0]
            self._grpc_port = sockets.hold_for_grpc(host, self._settings.grpc_port)
            log.warning("%s", NO_NGINX)
            if self._settings.extra_ports is not None:
                log.warning("TFS_PROXY_EXTRA_PORTS has no effect without nginx")
            self._control_api.count_early = self._records.note_early
        else:
            self._start_nginx(nginx_program)
        await self._control_api.stand_in(self._stack.web)
        log.info("listening on http://%s", sockets.shown_address(self._listener))

    def _start_nginx(self, program: str) -> None:
        count = gunicorn.listeners(self._settings)
        self._stack.web = tuple(sockets.listen(sockets.LOOPBACK, 0) for _ in range(count))
        self._proxy = NginxProxy(program, self._settings, self._workspace, self._listener, self._stack.web)
        self._children.nginx = self._children.start(self._proxy.spec(self._request.environ))

    def _forget_surplus_listeners(self) -> None:
        """Large models may leave memory for fewer workers: nginx forgets the sockets of the others."""
        if self._proxy is not None:
            count = gunicorn.listeners(self._stack.settings)
            self._stack.web, surplus = self._stack.web[:count], self._stack.web[count:]
            self._proxy.web = self._stack.web
            for listener in surplus:
                listener.close()

    def _expect(self, planned: plan.ProcessPlan) -> None:
        deployment = planned.deployment
        if deployment.capture is not None:
            check_folder(deployment.capture)
            log.info("%s", described(deployment.capture))
        self._control_api.deployment = replace(deployment, counts_requests=self._proxy is None)
        self._records.requests.expect(KnownModels(deployment.default_model, deployment.models))
        self._outside.model_servers.begin(deployment.instances, planned.metrics_path)

    def _start_grpc_router(self, deployment: Deployment) -> None:
        """Start what answers the Open Inference Protocol over gRPC, and without nginx takes all calls."""
        behind_nginx = self._proxy is not None and self._proxy.grpc_listener is not None
        if self._grpc_port is None and (not behind_nginx or deployment.open_inference == OFF):
            return
        spec = grpc_router.process(
            self._settings,
            self._workspace,
            nginx.answer_seconds(self._settings),
            self._request.environ,
            deployment,
            None if self._grpc_port is None else sockets.shown_address(self._grpc_port),
        )
        self._children.grpc_router = self._children.start(spec)

    def _begin_serving(self, first: FirstRequest) -> None:
        """From here on /ping answers 200."""
        self._stack.begin_serving()
        self._open_grpc_gates()
        self._control_api.release()
        self._outside.warm_up()
        url = sockets.local_url(self._listener)
        log.info("%s", ready_line(url, first.command(url)))

    def _tick(self) -> None:
        self._orphans.collect()
        if self._reloading is not None:
            self._reloading.reap_orphans()
        self._open_grpc_gates()
        self._records.read()

    def _open_grpc_gates(self) -> None:
        if self._grpc_port is not None or (self._proxy is not None and self._proxy.grpc_listener is not None):
            self._grpc_gates.lead_to(self._readiness.loaded())

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
        if starting:
            self._stack.abandon_loading()
        reading = asyncio.create_task(self._records.keep_reading())
        try:
            await self._run_loop.stop(self._stop_children(deadline), self._children.all())
        finally:
            reading.cancel()
        self._stack.close()
        if self._grpc_port is not None:
            self._grpc_port.close()
        self._control_api.close()
        self._records.close()

    def _entrances(self) -> list[socket.socket]:
        """The open listeners that clients connect to."""
        others = self._proxy.other_entrances if self._proxy is not None else []
        return [entrance for entrance in (self._listener, *others) if entrance.fileno() >= 0]

    async def _stop_children(self, deadline: float) -> None:
        if self._children.nginx is not None:
            await self._children.nginx.stop(deadline - time.monotonic())
        if self._children.grpc_router is not None:
            await self._children.grpc_router.stop(max(deadline - time.monotonic(), LAST_STEPS_SECONDS))
        await self._stack.stop_workers(deadline - time.monotonic())
        if self._reloading is not None:
            await self._reloading.stop()
        await self._stack.stop_model_servers(max(deadline - time.monotonic(), LAST_STEPS_SECONDS))
