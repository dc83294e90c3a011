"""A run of models that come and go, each with a stack of its own, and the processes that all of them share.

POST /models -> api -> models -> model -> model_stack -> run.stack
"""

import asyncio
import logging
from collections.abc import Awaitable, Collection, Iterator
from typing import Final

from tfs_proxy.model.report.first_request import ready_line
from tfs_proxy.model.report.served import Served
from tfs_proxy.model.report.serving_flags import capacity
from tfs_proxy.model.report.startup import variable_notes
from tfs_proxy.observe.metric import added_up
from tfs_proxy.observe.request_counts import KnownModels
from tfs_proxy.observe.traces import trace_sampling
from tfs_proxy.run.control_api import ControlApi, served_models
from tfs_proxy.run.gpus import visible_devices
from tfs_proxy.run.guarded import words_of
from tfs_proxy.run.host.sockets import Listeners, unbound
from tfs_proxy.run.host.waiting import together
from tfs_proxy.run.host.workspace import run_workspace
from tfs_proxy.run.many_models.api import ModelsApi
from tfs_proxy.run.many_models.archives import ModelFolder, model_folder, universal_code
from tfs_proxy.run.many_models.model_stacks import ModelStacks
from tfs_proxy.run.many_models.models import ModelRegistry
from tfs_proxy.run.many_models.on_demand import OnDemandModels, load_below
from tfs_proxy.run.many_models.pages import page_routes
from tfs_proxy.run.many_models.shared_servers import SharedServers
from tfs_proxy.run.metrics import RunMetrics
from tfs_proxy.run.nginx import config as nginx
from tfs_proxy.run.nginx.many_models import COMMON_SOCKET, COMMON_WORKSPACES, MultiModelRoutes
from tfs_proxy.run.open_inference import ONLY_VERSION, open_inference_routes
from tfs_proxy.run.opening import ServeRequest
from tfs_proxy.run.plan import deployment_of
from tfs_proxy.run.process import ChildProcess
from tfs_proxy.run.programs import gunicorn
from tfs_proxy.run.programs.zygote import Zygote
from tfs_proxy.run.readiness import Readiness, StackState
from tfs_proxy.run.run import Run, RunHost, Stacks, Versions
from tfs_proxy.run.run_loop import last_seconds
from tfs_proxy.run.scraping import OutsideMetrics
from tfs_proxy.run.stack_children import StackChildren
from tfs_proxy.settings.parsers import check_ports
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.errors import SettingsError, StartTimeout
from tfs_proxy.values.layout import ModelLayout
from tfs_proxy.wire.header_names import TARGET_MODEL
from tfs_proxy.wire.http_server import BACKLOG
from tfs_proxy.wire.routes import MANY_MODELS

log = logging.getLogger(__name__)

UNLOAD_SECONDS: Final = 30.0
"""Further time for ending a load that took too long."""

MODELS_DIR: Final = "/opt/ml/models"
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


async def serve_many(
    settings: Settings, listeners: Listeners, request: ServeRequest, folder: str | None
) -> int:
    """Serves changing models until SIGTERM, SIGINT or SIGHUP; returns 0 then.

    With ``folder``, a folder or an address of a store, the archives below it are loaded on demand. Raises
    StopServing if the run can't start or go on. ``listeners`` are closed at the end.
    """
    refuse_unusable(settings)
    with run_workspace(settings.home, LONGEST_PATH) as workspace:
        code = await asyncio.to_thread(universal_code, settings, workspace)
        if code is not None:
            log.info("Script of models without one: %s", settings.program)
        servers = settings.instance_count
        if "SAGEMAKER_TFS_INSTANCE_COUNT" not in settings.given:  # else one for each GPU
            servers = max(1, len(await asyncio.to_thread(visible_devices, request.environ)))
            check_ports(settings.safe_port_range, servers, settings.grpc_port)
        settings = settings.with_values(universal_code=code, instance_count=servers)
        models = None if folder is None else model_folder(folder)
        if models is not None:
            count = len((await asyncio.to_thread(models.check)).paths)
            log.info("Models: %d archives below %s, loaded by the first request", count, folder)
        run = Run(
            settings,
            listeners,
            request.environ,
            workspace,
            lambda host: ManyModels(settings, request, host, models),
        )
        return await run.serve()


class ManyModels(Stacks):
    """The stacks of a run whose models come and go; those in ``folder`` are loaded by their first request.

    They share model servers, and workers for models without a script.
    """

    kind = MANY_MODELS

    def __init__(
        self, settings: Settings, request: ServeRequest, host: RunHost, folder: ModelFolder | None
    ) -> None:
        self._settings = settings
        self._request = request
        self._host = host
        self._front = host.front
        self._records = host.records
        self._records.set_models(KnownModels(None, {}))
        self._zygote = Zygote(settings, host.workspace, request.environ)
        self._servers = SharedServers(settings, host.workspace)
        self.children = StackChildren(settings, self._servers, host.workspace, host, tick=self._route_grpc)
        self._deployment: Deployment | None = None
        self._listener = unbound()
        stacks = self._stacks = ModelStacks(settings, request, host, self._zygote.spawn, self._servers)
        self._registry = ModelRegistry(stacks.launch, settings.max_loaded_models or None, stacks.admit)
        self._on_demand = None if folder is None else OnDemandModels(self._registry, folder, stacks.uses)
        metrics = RunMetrics(
            self,
            host.workspace.journal,
            self._records.measure,
            self._stacks.measure,
            self._registry.measure,
            front=self._front,
        )
        load = load_below((MODELS_DIR, *words_of(settings.model_folders)), self._registry, self._on_demand)
        models = ModelsApi(self._registry, settings.request_timeout_seconds, self._on_demand, load)
        protocol = open_inference_routes(self, host.workspace.translator_socket)
        routes = {
            **models.routes,
            **page_routes(self._registry, self._on_demand, settings),
            **(protocol if settings.publishes_open_inference else {}),
            **served_models(self._served_names),
        }
        self._outside = OutsideMetrics(stacks.metrics_folders, "model")
        self.control_api = ControlApi(
            self,
            routes,
            measure=lambda headers: added_up(metrics.measure(headers)),
            outside=self._outside,
        )

    @property
    def readiness(self) -> Readiness:
        return self.children.readiness

    @property
    def deployment(self) -> Deployment | None:
        return self._deployment

    def ready_versions(self) -> Versions:
        ready: dict[str, Collection[int]] = {}
        for model in self._registry.all():
            if model.state is StackState.READY and not model.unhealthy:
                ready |= model.served or {model.name: (ONLY_VERSION,)}
        return ready

    def _served_names(self) -> Collection[str] | None:
        names = [name for model in self._registry.all() for name in model.served]
        return names if self._settings.rest_api else None

    def _route_grpc(self) -> None:
        """Sends gRPC calls to those model servers that have all models: one that restarts has none."""
        self._front.route_grpc(self.readiness.loaded(), self._host.workspace)

    def prepare(self) -> MultiModelRoutes:
        """Makes the zygote, and takes ports; returns nginx's routes."""
        self.readiness.steps.begin("starting: nginx")
        self._zygote.start(self._front.start)
        self._servers.reserve_ports()
        for note in variable_notes(self._request.environ):
            log.info("Note: %s", note)
        settings = self._settings
        return MultiModelRoutes(
            load_seconds=settings.install_seconds + settings.wait_time_seconds + UNLOAD_SECONDS,
            takes_target_model=self._on_demand is not None,
            traces=trace_sampling(self._request.environ),
            instances=self._servers.instances,
        )

    async def start(self) -> str:
        """Returns the line with the address once the common parts are ready. Raises StartTimeout."""
        settings = self._settings
        limit_seconds = self._settings.wait_time_seconds
        self._front.start_translator(
            settings.open_inference, settings.instance_count, settings.max_decoded_bytes
        )
        try:
            async with asyncio.timeout(limit_seconds):
                await self.children.watch_during(self._start_common_parts())
        except TimeoutError:
            step = self.readiness.steps.current
            raise StartTimeout(
                f"not ready within SAGEMAKER_TFS_WAIT_TIME_SECONDS={limit_seconds:g}: {step}."
            ) from None
        self.readiness.begin_serving()
        self._route_grpc()
        url = self._front.url
        reach = self._front.reach
        keys = self._settings.api_keys
        sent = "curl -H 'Content-Type: application/json'"
        if self._on_demand is not None:
            body = f"-H '{TARGET_MODEL}: NAME.tar.gz' -d '{{\"instances\": [1.0]}}'"
            return ready_line(reach, f"{sent} {body} {url}/invocations", keys)
        load = f'{sent} -d \'{{"model_name": "NAME", "url": "/PATH/TO/MODEL"}}\' {url}/models'
        return ready_line(f"{reach}, without a model", load, self._settings.admin_keys or keys)

    async def _start_common_parts(self) -> None:
        settings = self._settings
        workspace = self._host.workspace
        environ = self._request.environ
        log.info("Processes for all models: %s", capacity(settings, models=True))
        self.readiness.steps.begin("starting: the model server of all models")
        await self._servers.start(self._request, self.children)
        nothing = Served(ModelLayout(workspace.root), (), "")
        folder = workspace.root / COMMON_WORKSPACES
        self._deployment = deployment_of(nothing, settings, self._servers.instances, many_models=folder)
        self.readiness.steps.begin("starting: waiting for a worker")
        self._listener.bind(str(workspace.root / COMMON_SOCKET))
        self._listener.listen(BACKLOG)
        self._listener.set_inheritable(True)
        descriptors = [self._listener.fileno()]
        log_config = self._records.log
        spec = gunicorn.gunicorn_process(settings, workspace, descriptors, (), environ, log_config)
        self.children.start_workers(spec, self._zygote.spawn)
        await self.readiness.heartbeats.booted.wait()
        await self._front.until_translator_listens()

    async def watch(self) -> None:
        """Watches the common parts. Raises StopServing if a process gives up."""
        work: list[Awaitable[None]] = [self._servers.states.forever(), self._outside.keep_folding()]
        if self._on_demand is not None and self._front.takes_grpc:
            work.append(self._stacks.follow_served_counts())
        await self.children.watch_during(together(*work))

    def look(self) -> bool:
        """Handles changes; models come and go at any time, so the next look comes soon."""
        self._zygote.reap_orphans()
        self._stacks.look(self._registry.names)
        return True

    def begin_draining(self) -> None:
        """Loads no more models."""
        self._servers.stopping.set()
        self._registry.begin_draining()

    async def stop(self, deadline: float) -> None:
        """Unloads all models, and ends what they share."""
        await self._registry.close(deadline)
        await self.children.stop_workers(last_seconds(deadline))
        await self._servers.stop(last_seconds(deadline))
        self._listener.close()
        await self._zygote.stop()

    def all_children(self) -> Iterator[ChildProcess]:
        yield from self.children.in_start_order()
        yield from self._stacks.children()
        yield from self._zygote.children()
