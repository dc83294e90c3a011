"""The run loop of a pipeline: starts every stage, opens the HTTP server, watches, drains, sums up."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

from msgspec import Struct

from tfs_proxy.model.report.first_request import command_in, ready_line
from tfs_proxy.observe.logs.access import RequestLog
from tfs_proxy.run.host import sockets
from tfs_proxy.run.host.processes import describe_exit
from tfs_proxy.run.host.sockets import Listeners
from tfs_proxy.run.host.workspace import run_workspace
from tfs_proxy.run.pipeline.chain import Chain
from tfs_proxy.run.pipeline.endpoint import PipelineEndpoint, faults
from tfs_proxy.run.pipeline.front import PipelineFront
from tfs_proxy.run.pipeline.stage import (
    Stage,
    StageClient,
    StageOrder,
    line_text,
    ports_needed,
    process,
    show_of_stage,
    stage,
)
from tfs_proxy.run.process import ChildProcess, ProcessState
from tfs_proxy.run.run_loop import LAST_STEPS_SECONDS, RunLoop
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import ProcessGaveUp, SettingsError
from tfs_proxy.values.layout import Workspace
from tfs_proxy.values.resources import CONCURRENCY

log = logging.getLogger(__name__)

TICK_SECONDS = 0.05


class PipelineRequest(Struct, frozen=True):
    """Requests of the command line, besides the settings."""

    orders: Sequence[StageOrder]
    model_server: str
    environ: Mapping[str, str]


async def serve(settings: Settings, listeners: Listeners, request: PipelineRequest) -> int:
    """Serves the pipeline until SIGTERM, SIGINT or SIGHUP; returns 0 then.

    Raises StopServing if a stage can't start or has given up, SettingsError for what no pipeline has.
    ``listeners`` are closed at the end.
    """
    if settings.capture_folder is not None:
        raise SettingsError(
            "TFS_PROXY_CAPTURE can't be used for a pipeline as a whole: give a folder to each stage that "
            "is to record its requests, as in --env 1:TFS_PROXY_CAPTURE=FOLDER."
        )
    with run_workspace(settings.home) as workspace, ExitStack() as held:
        return await Pipeline(settings, listeners, plan(request, held), request, workspace).run()


def plan(request: PipelineRequest, held: ExitStack) -> list[Stage]:
    """The stages with their ports, which ``held`` reserves.

    Raises SettingsError if the variables of one can't be used.
    """
    numbered = list(enumerate(request.orders, start=1))
    sizes = [ports_needed(order, number, request.environ) for number, order in numbered]
    blocks = sockets.free_blocks(sizes, held)
    return [
        stage(number, order, ports, request.environ)
        for (number, order), ports in zip(numbered, blocks, strict=True)
    ]


class Pipeline:
    """All stages of one run, and the endpoint in front of them."""

    def __init__(
        self,
        settings: Settings,
        listeners: Listeners,
        stages: list[Stage],
        request: PipelineRequest,
        workspace: Workspace,
    ) -> None:
        self._settings = settings
        self._listeners = listeners
        self._request = request
        self._stages = stages
        self._url = sockets.local_url(listeners)
        self._command = f"curl {self._url}/ping"
        self._threads = ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="stage-client")
        self._clients = [
            StageClient(stage, self._threads, settings.request_timeout_seconds) for stage in self._stages
        ]
        self._endpoint = self._make_endpoint()
        workspace.port.write_text(str(listeners[0].getsockname()[1]))
        self._front = PipelineFront(
            settings, workspace, listeners, request.environ, self._endpoint.respond, self._endpoint.refused
        )
        self._children = [self._child(stage) for stage in self._stages]
        self._run_loop = RunLoop(settings.stop_seconds)
        self._tasks: list[asyncio.Task[None]] = []

    def _make_endpoint(self) -> PipelineEndpoint:
        settings = self._settings
        chain = Chain(self._clients, settings.request_timeout_seconds, settings.hop_limit_bytes)
        requests = RequestLog(settings.access_log)
        return PipelineEndpoint(self._stages, chain, settings.hop_limit_bytes, requests)

    def _child(self, stage: Stage) -> ChildProcess:
        return ChildProcess(
            process(stage, self._request.model_server),
            may_restart=lambda _child: self._endpoint.is_ready,
            heard=self._hear_first if stage is self._stages[0] else lambda _line: None,
            show=partial(show_of_stage, stage.number),
        )

    async def run(self) -> int:
        await self._run_loop.run(self._start_and_watch(), self._drain)
        self._sum_up()
        return self._run_loop.end()

    async def _start_and_watch(self) -> None:
        await self._front.open()
        log.info("listening on %s", sockets.shown(self._listeners))
        if self._front.nginx is not None:
            self._tasks.append(asyncio.create_task(self._front.nginx.run()))
        for served, child in zip(self._stages, self._children, strict=True):
            log.info("%s: serving %s on port %d", served.name, served.archive, served.port)
            self._tasks.append(asyncio.create_task(child.run()))
        while await faults(self._stages):
            await self._watch_for(TICK_SECONDS)
        self._endpoint.begin_serving()
        log.info("%s", ready_line(f"{self._url}, {sockets.reach(self._listeners)}", self._command))
        while True:
            await self._watch_for(1.0)

    def _all_children(self) -> list[ChildProcess]:
        return [*self._children, *([] if self._front.nginx is None else [self._front.nginx])]

    def _hear_first(self, line: str) -> None:
        """Suggests the first stage's request for the pipeline."""
        self._command = command_in(line_text(line), self._url) or self._command

    async def _watch_for(self, seconds: float) -> None:
        """Waits. Raises ProcessGaveUp, with a stage's own exit status, if one has given up."""
        await asyncio.sleep(seconds)
        for child in self._all_children():
            child.reap_orphans()
            if child.state is ProcessState.GAVE_UP:
                error = ProcessGaveUp(
                    f"{child.name} ended with {describe_exit(child.exit_status)}; see its log above."
                )
                if child.exit_status and child.exit_status > 0:
                    error.exit_status = child.exit_status
                raise error

    async def _drain(self, _stop_requested: bool) -> None:
        """Answers requests under way, then stops all stages at once."""
        deadline = time.monotonic() + self._settings.stop_seconds
        if self._endpoint.is_ready:
            await self._run_loop.accept_pending(self._listeners, deadline)
        ports = [self._listeners[0].getsockname()[1]]
        self._front.close()
        await self._run_loop.stop(
            *(self._stop_all, self._all_children(), deadline), lambda: sockets.connections(ports)
        )

    async def _stop_all(self, deadline: float) -> None:
        await self._front.drain(deadline - time.monotonic())
        seconds = max(deadline - time.monotonic(), LAST_STEPS_SECONDS)
        await asyncio.gather(*(child.stop(seconds) for child in self._children))
        for client in self._clients:
            client.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _sum_up(self) -> None:
        """Logs counts and latencies of each stage."""
        for client in self._clients:
            shown = ", ".join(
                f"{name} {spent:g} ms" for name, spent in client.latencies.milliseconds().items()
            )
            log.info(
                "%s: %d requests answered, %d of them refused; %d not answered, %d not reached; %s",
                client.stage.name,
                client.latencies.count,
                client.counts.refused,
                client.counts.unanswered,
                client.counts.not_reached,
                shown,
            )
