"""A run of models that come and go, each with a stack of its own, and the processes that all of them share.

POST /models -> api -> models -> model -> model_stack -> run.stack
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Final

from tfs_proxy.model.report.served import Served
from tfs_proxy.model.report.serving_flags import capacity
from tfs_proxy.model.report.startup import variable_notes
from tfs_proxy.observe.metric import added_up
from tfs_proxy.observe.request_counts import KnownModels
from tfs_proxy.observe.traces import trace_sampling
from tfs_proxy.run.control_api import ControlApi
from tfs_proxy.run.gpus import visible_devices
from tfs_proxy.run.heartbeats import WorkerCounts
from tfs_proxy.run.host.sockets import Listeners, unbound
from tfs_proxy.run.host.workspace import run_workspace
from tfs_proxy.run.many_models.admission import Turns
from tfs_proxy.run.many_models.archives import ModelFolder, model_folder, universal_code
from tfs_proxy.run.many_models.control import make_control_api
from tfs_proxy.run.many_models.model_stack import HttpGates, RunFacts
from tfs_proxy.run.many_models.models import ModelRegistry, ModelStacks
from tfs_proxy.run.many_models.on_demand import OnDemandModels
from tfs_proxy.run.many_models.shared_servers import SharedServers
from tfs_proxy.run.many_models.uses import COUNT_SECONDS
from tfs_proxy.run.metrics import RunMetrics
from tfs_proxy.run.nginx import config as nginx
from tfs_proxy.run.nginx.many_models import COMMON_SOCKET, COMMON_WORKSPACES, MultiModelRoutes
from tfs_proxy.run.opening import ServeRequest
from tfs_proxy.run.plan import deployment_of
from tfs_proxy.run.process import ChildProcess
from tfs_proxy.run.programs import gunicorn
from tfs_proxy.run.programs.zygote import Zygote
from tfs_proxy.run.readiness import ExpectedVersion, Readiness, ServableState, StackState
from tfs_proxy.run.run import Run, RunHost
from tfs_proxy.run.run_loop import LAST_STEPS_SECONDS, together
from tfs_proxy.run.sessions import session_metrics, with_session_store
from tfs_proxy.run.stack import StackHost, heartbeats_of
from tfs_proxy.settings.parsers import check_ports
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.errors import SettingsError, StartTimeout
from tfs_proxy.values.layout import ModelLayout
from tfs_proxy.wire.header_names import TARGET_MODEL
from tfs_proxy.wire.http_server import BACKLOG

log = logging.getLogger(__name__)

UNLOAD_SECONDS: Final = 30.0
"""Further time for ending a load that took too long."""

LONGEST_PATH: Final = "s/99999/control.sock"


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


def ready_line(url: str, reach: str, *, loads_on_demand: bool) -> str:
    """The address for requests, and a curl command: a load, or a request that loads its model."""
    if loads_on_demand:
        return (
            f"ready: {reach}  try: curl -H '{TARGET_MODEL}: NAME.tar.gz' "
            f"-H 'Content-Type: application/json' -d '{{\"instances\": [1.0]}}' {url}/invocations"
        )
    return (
        f"ready: {reach}, without a model  try: curl -H 'Content-Type: application/json' "
        f'-d \'{{"model_name": "NAME", "url": "/PATH/TO/MODEL"}}\' {url}/models'
    )


async def serve_many(
    settings: Settings, listeners: Listeners, request: ServeRequest, folder: str | None
) -> int:
    """Serves changing models until SIGTERM, SIGINT or SIGHUP; returns 0 then.

    With ``folder``, a folder or an ``s3://`` address, the archives below it are loaded on demand. Raises
    StopServing if the run can't start or go on. ``listeners`` are closed at the end.
    """
    refuse_unusable(settings)
    with (
        run_workspace(settings.home, LONGEST_PATH) as workspace,
        with_session_store(settings, workspace) as stored,
    ):
        code = await asyncio.to_thread(universal_code, settings, workspace)
        if code is not None:
            log.info("Script of models without one: %s", settings.program)
        servers = await asyncio.to_thread(_model_servers, settings, request.environ)
        settings = stored.with_values(universal_code=code, instance_count=servers)
        models = None if folder is None else await _open_folder(folder)
        run = Run(
            *(settings, listeners, request.environ, workspace),
            lambda host: ManyModels(settings, request, host, models),
        )
        return await run.run()


def _model_servers(settings: Settings, environ: Mapping[str, str]) -> int:
    """Number of model servers: one for each GPU, unless the settings say how many. Raises SettingsError."""
    if "SAGEMAKER_TFS_INSTANCE_COUNT" in settings.given:
        return settings.instance_count
    servers = max(1, len(visible_devices(environ)))
    check_ports(settings.safe_port_range, servers, settings.grpc_port)
    return servers


async def _open_folder(location: str) -> ModelFolder:
    folder = model_folder(location)
    listing = await asyncio.to_thread(folder.check)
    log.info("Models: %d archives below %s, loaded by the first request", len(listing.paths), location)
    return folder


class SharedReadiness(Readiness):
    """The readiness of a run with changing models: that of their common parts, whatever models there are."""

    def _is_awaited(self, servable: ExpectedVersion, state: ServableState) -> bool:
        """A failed model concerns only its own requests."""
        return not state.failed and super()._is_awaited(servable, state)


class SharedParts:
    """Parts that the models of a run share: model servers, and workers for models without a script.

    ``lost`` is called for each model server that ends.
    """

    def __init__(self, settings: Settings, host: StackHost, lost: Callable[[int], None]) -> None:
        self._settings, self._workspace, self._host = settings, host.workspace, host
        self.readiness = SharedReadiness(heartbeats_of(settings, host.counts), front_down=host.front_down)
        self.servers = SharedServers(settings, host.workspace, self.readiness, host.deaths, lost)
        self.children = self.servers.children
        self.deployment: Deployment | None = None
        self._listener = unbound()

    async def start(self, request: ServeRequest) -> None:
        """Starts the model servers and the workers; returns once one of these answers."""
        log.info("Processes for all models: %s", capacity(self._settings, models=True))
        self.readiness.begin_step("starting: the model server of all models")
        await self.servers.start(request)
        nothing = Served(ModelLayout(self._workspace.root), (), "")
        folder = self._workspace.root / COMMON_WORKSPACES
        self.deployment = deployment_of(nothing, self._settings, self.servers.instances, many_models=folder)
        self.readiness.begin_step("starting: waiting for a worker")
        self._listener.bind(str(self._workspace.root / COMMON_SOCKET))
        self._listener.listen(BACKLOG)
        self._listener.set_inheritable(True)
        descriptors = [self._listener.fileno()]
        spec = gunicorn.process(
            self._settings, self._workspace, descriptors, (), request.environ, self._host.log
        )
        self.children.start_workers(spec, self._host.spawn_workers)
        await self.readiness.heartbeats.booted.wait()

    async def stop(self, deadline: float) -> None:
        """Ends the workers, whose requests have ended, and then the model servers."""
        for child in (self.children.workers, *self.children.model_servers):
            if child is not None:
                await child.stop(max(deadline - time.monotonic(), LAST_STEPS_SECONDS))
        self._listener.close()
        self.servers.close()


class ManyModels:
    """The stacks of a run whose models come and go; those in ``folder`` are loaded by their first request."""

    def __init__(
        self, settings: Settings, request: ServeRequest, host: RunHost, folder: ModelFolder | None
    ) -> None:
        self._settings, self._request, self._host = settings, request, host
        self._front, self._records = host.front, host.records
        self._counts = WorkerCounts(stages=host.records.stages)
        self._records.expect(KnownModels(None, {}))
        self._zygote = Zygote(settings, host.workspace, request.environ)
        common = StackHost(
            host.workspace,
            host.records.log,
            self._zygote.spawn,
            deaths=host.deaths,
            counts=self._counts,
            front_down=host.front.children.down,
        )
        self._common = SharedParts(settings, common, self._lose_model_server)
        self._stacks = ModelStacks(self._facts(), self._records)
        self._registry = ModelRegistry(
            self._stacks.launch, settings.max_loaded_models or None, self._stacks.admit
        )
        self._on_demand = (
            None if folder is None else OnDemandModels(self._registry, folder, self._stacks.uses)
        )
        self.control_api = self._make_control_api()

    def _lose_model_server(self, index: int) -> None:
        self._stacks.lose_model_server(index)
        self._route_grpc()

    def _route_grpc(self) -> None:
        """Sends gRPC calls to those model servers that have all models: one that restarts has none."""
        if self.readiness.state is not StackState.STARTING:
            self._front.route_grpc(self._common.servers.loaded(), self._host.workspace)

    def _facts(self) -> RunFacts:
        return RunFacts(
            self._settings,
            self._request.model_server,
            self._request.environ,
            self._host.workspace,
            self._records.log,
            self._counts,
            self._front.port,
            HttpGates(self._host.workspace.root),
            self._zygote.spawn,
            self._common.servers,
            # One core is left to models that serve.
            Turns(max(1, self._settings.machine.cores - 1)),
        )

    def _make_control_api(self) -> ControlApi:
        records, workspace = self._records, self._host.workspace
        metrics = RunMetrics(
            lambda: self._common,
            workspace.journal,
            records.measure,
            self._stacks.measure,
            self._registry.measure,
            partial(session_metrics, self._settings),
            front=self._front.children,
        )
        return make_control_api(
            self._settings,
            self._common,
            lambda headers: added_up(metrics.measure(headers)),
            self._registry,
            self._stacks,
            self._on_demand,
            workspace.translator_socket,
        )

    @property
    def readiness(self) -> Readiness:
        return self._common.readiness

    def prepare(self) -> MultiModelRoutes:
        """Makes folders and the zygote, and takes ports; returns nginx's routes."""
        self.readiness.begin_step("starting: nginx")
        self._zygote.start(self._front.children.start)
        self._stacks.make_folders()
        self._common.servers.take_ports()
        for note in variable_notes(self._request.environ):
            log.info("Note: %s", note)
        return MultiModelRoutes(
            load_seconds=self._settings.load_seconds + UNLOAD_SECONDS,
            takes_target_model=self._on_demand is not None,
            traces=trace_sampling(self._request.environ),
            # Capture is the workers', so all requests must pass them.
            instances=self._common.servers.instances if self._settings.capture_folder is None else (),
        )

    async def start(self) -> str:
        """Returns the line with the address once the common parts are ready. Raises StartTimeout."""
        self._front.start_translator(self._settings.open_inference)
        limit_seconds = self._settings.wait_time_seconds
        try:
            async with asyncio.timeout(limit_seconds):
                await self._common.children.watch_during(self._become_ready())
        except TimeoutError:
            raise StartTimeout(
                f"not ready within SAGEMAKER_TFS_WAIT_TIME_SECONDS={limit_seconds:g}: {self.readiness.step}."
            ) from None
        self.readiness.begin_serving()
        self._route_grpc()
        return ready_line(self._front.url, self._front.reach, loads_on_demand=self._on_demand is not None)

    async def _become_ready(self) -> None:
        await self._common.start(self._request)
        await self._front.until_translator_listens()

    async def watch(self) -> None:
        """Watches the common parts, and unloads idle models. Raises StopServing if a process gives up."""
        work: list[Awaitable[None]] = [self._common.servers.watch()]
        idle_seconds = self._settings.model_idle_seconds
        if self._on_demand is not None and self._front.takes_grpc:
            servers, seconds = self._common.servers, min(COUNT_SECONDS, idle_seconds / 2 or COUNT_SECONDS)
            counts = self._stacks.served_counts
            work.append(counts.follow(servers.instances, servers.metrics_path, seconds))
        if self._on_demand is not None and idle_seconds:
            work.append(self._on_demand.unload_idle(idle_seconds))
        await self._common.children.watch_during(together(*work))

    def look(self) -> bool:
        """Handles changes; models come and go at any time, so the next look comes soon."""
        self._zygote.reap_orphans()
        self._stacks.look(self._registry.names)
        self._route_grpc()
        return True

    def abandon_loading(self) -> None:
        """Nothing is killed: the common parts have no models yet."""

    def begin_draining(self, deadline: float) -> None:
        """Loads no more models; their stacks have until ``deadline`` to end."""
        self._common.servers.stop_waiting()
        self._registry.begin_draining()
        self._stacks.stop_until(deadline)

    async def stop(self, deadline: float) -> None:
        """Unloads all models, and ends what they share."""
        await self._registry.close()
        await self._common.stop(deadline)
        await self._zygote.stop()

    def children(self) -> Iterator[ChildProcess]:
        yield from self._common.children.in_start_order()
        yield from self._stacks.children()
        yield from self._zygote.children()

    def close(self) -> None:
        """Nothing is left: each stack has released what it held."""
