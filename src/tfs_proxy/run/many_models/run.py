"""One run of many models: nginx, gRPC router, control API, and the registry with a stack for each model.

start-up: cli -> settings -> here; then POST /models -> api -> registry -> model_stack -> supervisor.stack
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterator
from typing import Final

from tfs_proxy.data.capture.files import capture_options
from tfs_proxy.model.report.serving_flags import capacity
from tfs_proxy.observe.metric import added_up
from tfs_proxy.observe.request_counts import KnownModels
from tfs_proxy.observe.tracing.choice import trace_choice
from tfs_proxy.run.children import Children
from tfs_proxy.run.control_api import ControlApi
from tfs_proxy.run.grpc_routes import GrpcRoutes
from tfs_proxy.run.heartbeats import Heartbeats
from tfs_proxy.run.host import sockets
from tfs_proxy.run.host.load_priority import NOT_RESTORED, LoadPriority
from tfs_proxy.run.host.processes import Orphans
from tfs_proxy.run.host.sockets import Listener
from tfs_proxy.run.host.watchdog import Watchdog, guarded_workspace
from tfs_proxy.run.logs.run_records import RunRecords
from tfs_proxy.run.many_models.archives import ModelFolder, model_folder, universal_code
from tfs_proxy.run.many_models.control import make_control_api
from tfs_proxy.run.many_models.gates import HttpGates
from tfs_proxy.run.many_models.model_stack import RunFacts
from tfs_proxy.run.many_models.model_stacks import ModelStacks
from tfs_proxy.run.many_models.on_demand import OnDemandModels
from tfs_proxy.run.many_models.registry import ModelRegistry
from tfs_proxy.run.many_models.shared_mode import SharedMode
from tfs_proxy.run.metrics import RunMetrics
from tfs_proxy.run.nginx import config as nginx
from tfs_proxy.run.nginx.many_models import COMMON_SOCKET, MultiModelRoutes
from tfs_proxy.run.nginx.proxy import NginxProxy
from tfs_proxy.run.opening import ServeRequest
from tfs_proxy.run.process import ChildProcess
from tfs_proxy.run.programs import grpc_router
from tfs_proxy.run.programs.zygote import Zygote
from tfs_proxy.run.readiness import ExpectedVersion, Phase, Readiness, ServableState
from tfs_proxy.run.run_loop import LAST_STEPS_SECONDS, RunLoop, together
from tfs_proxy.run.stack import StackHost, heartbeats_of
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import SettingsError, StartTimeout
from tfs_proxy.values.layout import Workspace
from tfs_proxy.wire.header_names import TARGET_MODEL


def refuse_unusable(settings: Settings) -> None:
    """Raises SettingsError for settings that multi-model mode can't use."""
    if nginx.program(settings) is None:
        raise SettingsError(
            "multi-model mode needs nginx, which sends requests to their models: install it, and don't set "
            "TFS_PROXY_NGINX=false."
        )
    if settings.gunicorn_worker_class != "gthread":
        raise SettingsError(
            f"SAGEMAKER_GUNICORN_WORKER_CLASS={settings.gunicorn_worker_class} can't be used in multi-model "
            "mode: take gthread."
        )


def ready_line(url: str, *, loads_on_demand: bool) -> str:
    """The address for requests, and a curl command: a load, or a request that loads its model."""
    if loads_on_demand:
        return (
            f"ready: {url}  try: curl -H '{TARGET_MODEL}: NAME.tar.gz' "
            f"-H 'Content-Type: application/json' -d '{{\"instances\": [1.0]}}' {url}/invocations"
        )
    return (
        f"ready: {url}, without a model  try: curl -H 'Content-Type: application/json' "
        f'-d \'{{"model_name": "NAME", "url": "/PATH/TO/MODEL"}}\' {url}/models'
    )


class FrontReadiness(Readiness):
    """The readiness of a run with changing models: that of their common parts, whatever models there are.

    ``is_shared`` says whether these are more than nginx and the gRPC router.
    """

    is_shared = False

    def reason(self) -> str | None:
        """The reason why requests can't be served now; None if they can."""
        reason = self.unready_processes()
        if reason is not None or not self.is_shared:
            return reason
        return self.heartbeats.lost() or self.heartbeats.problem() or self.missing()

    def _is_awaited(self, servable: ExpectedVersion, state: ServableState) -> bool:
        """A failed model concerns only its own requests."""
        return not state.failed and super()._is_awaited(servable, state)


log = logging.getLogger(__name__)

UNLOAD_SECONDS: Final = 30.0
"""Further time for ending a load that took too long."""

LONGEST_PATH: Final = "s/99999/control.sock"


async def serve_many(
    settings: Settings, listener: Listener, request: ServeRequest, folder: str | None
) -> int:
    """Serves changing models until SIGTERM, SIGINT or SIGHUP; returns 0 then.

    With ``folder``, a folder or an ``s3://`` address, the archives below it are loaded on demand. Raises
    StopServing if the run can't start or go on. ``listener`` is closed at the end.
    """
    refuse_unusable(settings)
    with guarded_workspace(settings.home, LONGEST_PATH) as (workspace, watchdog):
        code = await asyncio.to_thread(universal_code, settings, workspace)
        if code is not None:
            log.info("Script of models without one: %s", settings.program)
        settings = settings.with_values(universal_code=code)
        models = None if folder is None else await _open_folder(folder)
        return await MultiModelSupervisor(settings, listener, request, workspace, watchdog, models).run()


async def _open_folder(location: str) -> ModelFolder:
    folder = model_folder(location)
    listing = await asyncio.to_thread(folder.check)
    log.info("Models: %d archives below %s, loaded by the first request", len(listing.paths), location)
    return folder


class MultiModelSupervisor:
    """One run: everything between the open port and the exit status."""

    def __init__(
        self,
        settings: Settings,
        listener: Listener,
        request: ServeRequest,
        workspace: Workspace,
        watchdog: Watchdog,
        folder: ModelFolder | None,
    ) -> None:
        self._settings, self._listener, self._request = settings, listener, request
        self._workspace, self._watchdog = workspace, watchdog
        self._records = RunRecords(settings, request.environ, workspace, listener)
        self._records.requests.expect(KnownModels(None, {}))
        self._is_shared = settings.multi_model_mode == "shared"
        heartbeats = heartbeats_of(settings) if self._is_shared else Heartbeats()
        self._readiness = FrontReadiness(heartbeats)
        self._readiness.is_shared = self._is_shared
        self._children = Children(self._readiness, workspace, watchdog, own_exit_status=False)
        self._records.follow(self._children)
        self._children.each_tick = self._tick
        self._priority = LoadPriority()
        self._grpc_routes = GrpcRoutes()
        self._zygote = Zygote(settings, workspace, request.environ)
        self._shared = self._make_shared() if self._is_shared else None
        self._stacks = ModelStacks(self._facts(), self._records.requests)
        self._registry = ModelRegistry(
            self._stacks.launch, settings.max_loaded_models or None, self._stacks.admit
        )
        self._on_demand = (
            None if folder is None else OnDemandModels(self._registry, folder, self._stacks.uses)
        )
        self._control_api = self._make_control_api()
        self._orphans = Orphans()
        self._proxy: NginxProxy | None = None
        self._run_loop = RunLoop(settings.stop_seconds)

    def _facts(self) -> RunFacts:
        return RunFacts(
            self._settings,
            self._request.model_server,
            self._request.environ,
            self._workspace,
            self._watchdog,
            self._records.log,
            int(self._listener.getsockname()[1]),
            HttpGates(self._workspace.root),
            self._grpc_routes,
            self._zygote.spawn,
            self._priority,
            self._records.captured.add,
            None if self._shared is None else self._shared.servers,
        )

    def _make_shared(self) -> SharedMode:
        host = StackHost(self._workspace, self._watchdog, self._records.log, self._zygote.spawn)
        return SharedMode(self._settings, host, self._children, self._readiness)

    def _make_control_api(self) -> ControlApi:
        metrics = RunMetrics(
            self._readiness,
            self._children,
            self._workspace.journal,
            self._records.measure,
            self._stacks.measure,
            self._registry.measure,
        )
        return make_control_api(
            self._settings,
            self._readiness,
            lambda headers: added_up(metrics.measure(headers)),
            self._records.captured.add,
            lambda: self._records.times(self._stacks.measure_stages()),
            self._registry,
            self._stacks,
            self._on_demand,
            self._workspace.grpc_router_socket,
            {**self._records.run_log.routes, **self._grpc_routes.routes},
        )

    async def run(self) -> int:
        await self._run_loop.run(self._start_and_watch(), self._drain)
        return 0

    async def _start_and_watch(self) -> None:
        self._readiness.step = "starting: nginx"
        self._zygote.start(self._children.start)
        self._stacks.make_folders()
        if self._shared is not None:
            self._shared.servers.take_ports()
        await self._control_api.open(self._workspace.control_socket, self._workspace.client_socket)
        self._proxy = self._open_proxy()
        spec = self._proxy.spec(self._request.environ)
        if self._proxy.grpc_listener is not None:
            self._start_grpc_router()
        self._children.nginx = self._children.start(spec)
        await self._start_in_time()
        self._readiness.phase = Phase.SERVING
        self._readiness.steps.end()
        self._control_api.release()
        if not self._priority.can_be_restored:
            log.info("%s", NOT_RESTORED)
        url = sockets.local_url(self._listener)
        log.info("%s", ready_line(url, loads_on_demand=self._on_demand is not None))
        await self._children.watch_during(self._go_on())

    async def _start_in_time(self) -> None:
        """Returns once the common parts are ready. Raises StartTimeout at the limit."""
        limit_seconds = self._settings.wait_time_seconds
        try:
            async with asyncio.timeout(limit_seconds):
                await self._children.watch_during(self._become_ready())
        except TimeoutError:
            raise StartTimeout(
                f"not ready within SAGEMAKER_TFS_WAIT_TIME_SECONDS={limit_seconds:g}: {self._readiness.step}."
            ) from None

    async def _become_ready(self) -> None:
        if self._children.grpc_router is not None:
            self._readiness.step = "starting: the gRPC router"
            await sockets.until_it_listens(self._workspace.grpc_router_socket)
        if self._shared is not None:
            await self._start_shared(self._shared)

    async def _start_shared(self, shared: SharedMode) -> None:
        """Starts the common parts except nginx."""
        log.info("Processes for all models: %s", capacity(self._settings, models=True))
        self._readiness.step = "starting: the model server of all models"
        self._control_api.deployment = await shared.start(self._request)
        await shared.start_workers(self._request.environ)

    def _start_grpc_router(self) -> None:
        """Starts the process that sends gRPC calls to their models."""
        seconds = nginx.answer_seconds(self._settings)
        spec = grpc_router.process(self._settings, self._workspace, seconds, self._request.environ)
        self._children.grpc_router = self._children.start(spec)

    def _open_proxy(self) -> NginxProxy:
        choice = trace_choice(self._request.environ)
        if choice.warning:
            log.warning("%s", choice.warning)
        is_limited = self._settings.adaptive_limit_seconds is not None
        routes = MultiModelRoutes(
            load_seconds=self._settings.wait_time_seconds + UNLOAD_SECONDS,
            takes_target_model=self._on_demand is not None,
            traces=choice.sampling,
            capture=capture_options(self._settings, ""),
            # The workers hold the adaptive limit, so all requests must pass them.
            instances=self._shared.servers.instances if self._shared and not is_limited else (),
            common=() if self._shared is None else (f"unix:{COMMON_SOCKET}",),
        )
        return NginxProxy(
            nginx.find() or "", self._settings, self._workspace, self._listener, multi_model=routes
        )

    async def _go_on(self) -> None:
        work: list[Awaitable[None]] = [asyncio.get_running_loop().create_future()]  # which never ends
        if self._on_demand is not None and self._settings.model_idle_seconds:
            work.append(self._on_demand.unload_idle(self._settings.model_idle_seconds))
        if self._shared is not None:
            work.append(self._shared.servers.watch())
        await together(*work)

    def _tick(self) -> bool:
        """Handles changes; models come and go at any time, so the next tick comes soon."""
        self._orphans.collect()
        self._records.read()
        self._zygote.reap_orphans()
        self._stacks.look()
        self._stacks.forget_all_but(self._registry.names)
        return True

    async def _drain(self, stop_requested: bool) -> None:
        """Stops accepting, lets requests finish, then unloads all models; bounded in time."""
        deadline = time.monotonic() + self._settings.stop_seconds
        self._readiness.phase = Phase.STOPPING
        if stop_requested:
            await self._run_loop.accept_pending(self._entrances(), deadline)
        self._listener.close()
        if self._proxy is not None:
            self._proxy.close()
        reading = asyncio.create_task(self._records.keep_reading())
        try:
            await self._run_loop.stop(self._stop_all(deadline), self._all_children())
        finally:
            reading.cancel()
        self._control_api.close()
        self._records.close()

    def _entrances(self) -> list[Listener]:
        return [self._listener, *([] if self._proxy is None else self._proxy.other_entrances)]

    def _all_children(self) -> Iterator[ChildProcess]:
        yield from self._children.in_start_order()
        yield from self._stacks.children()
        yield from self._zygote.children()

    async def _stop_all(self, deadline: float) -> None:
        if self._shared is not None:
            self._shared.servers.stop_waiting()
        self._registry.begin_draining()  # requests that wait for a load would keep nginx
        self._stacks.stop_by = deadline
        if self._children.nginx is not None:
            await self._children.nginx.stop(deadline - time.monotonic())
        if self._children.grpc_router is not None:
            await self._children.grpc_router.stop(max(deadline - time.monotonic(), LAST_STEPS_SECONDS))
            self._grpc_routes.end()
        await self._registry.close()
        if self._shared is not None:
            await self._shared.stop(deadline)
        await self._zygote.stop()
