"""A row of archives as the stacks of a run: each is a stage, a `serve` of its own behind the run's front."""

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

from tfs_proxy.model.report.first_request import command_in, ready_line
from tfs_proxy.run.control_api import ControlApi, counted
from tfs_proxy.run.guarded import guard_of, guarded
from tfs_proxy.run.heartbeats import Heartbeats
from tfs_proxy.run.host.processes import describe_exit
from tfs_proxy.run.host.sockets import Listeners
from tfs_proxy.run.host.workspace import run_workspace
from tfs_proxy.run.model_states import ModelStates
from tfs_proxy.run.pipeline.endpoint import BodyMemory, PipelineEndpoint
from tfs_proxy.run.pipeline.stage import Stage, StageOrder, line_text, planned, show_of_stage
from tfs_proxy.run.process import ChildProcess, Children, Deaths
from tfs_proxy.run.readiness import Readiness, StackState
from tfs_proxy.run.run import Run, RunHost, Stacks
from tfs_proxy.run.run_loop import last_seconds
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import ProcessGaveUp, SettingsError, StopServing
from tfs_proxy.values.resources import CONCURRENCY
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES
from tfs_proxy.wire.http_server import HttpServer, app_of
from tfs_proxy.wire.routes import PIPELINE

log = logging.getLogger(__name__)

PAUSE_SECONDS = 0.05
"""Between two times that all stages are asked whether they are ready."""


async def serve_in_a_row(
    settings: Settings,
    listeners: Listeners,
    orders: Sequence[StageOrder],
    model_server: str,
    environ: Mapping[str, str],
) -> int:
    """Serves the pipeline of ``orders`` until SIGTERM, SIGINT or SIGHUP; returns 0 then.

    Raises StopServing if a stage can't start or has given up, SettingsError for what no pipeline has.
    ``listeners`` are closed at the end.
    """
    if settings.capture_folder is not None:
        raise SettingsError(
            "TFS_PROXY_CAPTURE can't be used for a pipeline as a whole: give a folder to each stage that "
            "is to record its requests, as in --env 1:TFS_PROXY_CAPTURE=FOLDER."
        )
    settings = settings.with_values(grpc_port=None, extra_ports=None, doors=frozenset())
    with run_workspace(settings.home) as workspace, ExitStack() as held:
        threads = ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="stage-client")
        held.callback(threads.shutdown, wait=False, cancel_futures=True)
        stages = planned(orders, environ, threads, held)
        run = Run(
            settings,
            listeners,
            environ,
            workspace,
            lambda host: Row(settings, host, stages, model_server),
        )
        return await run.serve()


class Row(Stacks):
    """All stages of one run: nginx receives requests, and this process passes complete ones through them.

    Without nginx it listens on the port itself, for development: it does not limit slow clients.
    """

    kind = PIPELINE
    deployment = None

    def __init__(self, settings: Settings, host: RunHost, stages: Sequence[Stage], model_server: str) -> None:
        self._settings = settings
        self._front = host.front
        self._stages = stages
        self._model_server = model_server
        self._readiness = Readiness(Heartbeats(), ModelStates())
        self._children = StageChildren(stages, self._readiness, host.deaths, host.front.url)
        seconds = settings.request_timeout_seconds
        self._endpoint = PipelineEndpoint(stages, self._readiness, seconds, host.records.measure)
        self.control_api = ControlApi(
            self,
            of_run=self._endpoint.respond,
            clients=partial(
                app_of,
                body_bytes=settings.max_payload_bytes,
                held=BodyMemory(settings.max_decoded_bytes).held,
                only_once=CUSTOM_ATTRIBUTES,
                ends_with_client=True,
            ),
        )
        for_all = guarded(self.control_api.for_clients, guard_of(settings))
        self._without_nginx = HttpServer(counted(for_all, host.records.note))

    @property
    def readiness(self) -> Readiness:
        return self._readiness

    async def answer_at_front(self) -> None:
        if not self._front.behind_nginx:
            await self._without_nginx.listen([listener.dup() for listener in self._front.web])

    async def start(self) -> str:
        """Returns the line with the address once all stages are ready."""
        for stage in self._stages:
            log.info("%s: serving %s on port %d", stage.name, stage.archive, stage.port)
        self._children.start_stages(self._model_server)
        await self._children.watch_during(self._until_ready())
        self._readiness.begin_serving()
        return ready_line(self._front.reach, self._children.command, self._settings.api_keys)

    async def _until_ready(self) -> None:
        while await self._endpoint.faults():  # noqa: ASYNC110 - stages do not tell
            await asyncio.sleep(PAUSE_SECONDS)

    async def watch(self) -> None:
        await self._children.watch_during(asyncio.Future())  # until one gives up

    def in_flight(self) -> int:
        return self._endpoint.in_flight

    def begin_draining(self) -> None:
        """Accepts nothing any more."""
        self._without_nginx.close()

    async def stop(self, deadline: float) -> None:
        """Ends all stages at once, and sums up the requests of each that had any."""
        await self._without_nginx.drain(deadline - time.monotonic())
        await asyncio.gather(
            *(child.stop(last_seconds(deadline)) for child in self._children.in_start_order())
        )
        for stage in self._stages:
            stage.close()
            if stage.was_asked:
                log.info("%s: %s", stage.name, stage.summary())

    def all_children(self) -> Iterator[ChildProcess]:
        yield from self._children.in_start_order()


class StageChildren(Children):
    """The processes of the stages. ``command`` is a request for a run at ``url``: the first stage's own."""

    def __init__(self, stages: Sequence[Stage], readiness: Readiness, deaths: Deaths, url: str) -> None:
        super().__init__(deaths)
        self._stages = stages
        self._readiness = readiness
        self._url = url
        self.command = f"curl {url}/ping"
        self._started: list[ChildProcess] = []

    def start_stages(self, model_server: str) -> None:
        self._started += [
            self.start(stage.process(model_server), show=partial(show_of_stage, stage.number))
            for stage in self._stages
        ]

    def in_start_order(self) -> list[ChildProcess]:
        return self._started

    def _hear(self, name: str, line: str) -> None:
        if name == self._stages[0].name:
            self.command = command_in(line_text(line), self._url) or self.command

    def _may_restart(self, child: ChildProcess) -> bool:
        """A stage that can't start ends the run."""
        return super()._may_restart(child) and self._readiness.state is not StackState.STARTING

    def _reason_to_stop(self, child: ChildProcess) -> StopServing:
        """Names the stage, whose own exit status, if it has one, is that of the run."""
        how = describe_exit(child.exit_status)
        error = ProcessGaveUp(f"{child.name} ended with {how}; see its log above.")
        if child.exit_status and child.exit_status > 0:
            error.exit_status = child.exit_status
        return error
