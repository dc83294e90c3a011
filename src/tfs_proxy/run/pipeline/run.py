"""The run loop of a pipeline: starts every stage, opens the HTTP server, watches, drains, sums up."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

from tfs_proxy.model.report.first_request import command_in, ready_line
from tfs_proxy.run.guarded import guard_of, guarded
from tfs_proxy.run.host import sockets
from tfs_proxy.run.host.processes import describe_exit
from tfs_proxy.run.host.sockets import Listeners
from tfs_proxy.run.host.workspace import run_workspace
from tfs_proxy.run.nginx import config
from tfs_proxy.run.nginx.front_files import FrontFiles
from tfs_proxy.run.nginx.proxy import nginx_process, proxy_on, write_config
from tfs_proxy.run.pipeline.endpoint import BodyMemory, PipelineEndpoint
from tfs_proxy.run.pipeline.stage import Stage, StageOrder, line_text, planned, show_of_stage
from tfs_proxy.run.process import ChildProcess, ProcessState
from tfs_proxy.run.run_loop import LAST_STEPS_SECONDS, RunLoop
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import ProcessGaveUp, SettingsError
from tfs_proxy.values.layout import Workspace
from tfs_proxy.values.resources import CONCURRENCY
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES
from tfs_proxy.wire.http_server import HttpServer, app_of

log = logging.getLogger(__name__)

TICK_SECONDS = 0.05
MORE_SECONDS = 5
"""Seconds that nginx waits beyond the limit of a request through all stages."""

NO_NGINX = "no nginx in front: a client that sends or reads slowly is waited for. This is for development"


async def serve(
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
    with run_workspace(settings.home) as workspace, ExitStack() as held:
        threads = ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="stage-client")
        stages = planned(orders, environ, threads, held)
        pipeline = Pipeline(settings, listeners, workspace, environ, stages, model_server)
        try:
            return await pipeline.serve()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)


class Pipeline:
    """All stages of one run, and their endpoint: nginx receives requests, this process answers complete ones.

    Without nginx that server listens on the port itself, for development: it does not limit slow clients.
    """

    def __init__(
        self,
        settings: Settings,
        listeners: Listeners,
        workspace: Workspace,
        environ: Mapping[str, str],
        stages: Sequence[Stage],
        model_server: str,
    ) -> None:
        self._settings = settings
        self._listeners = listeners
        self._stages = stages
        self._workspace = workspace
        self._environ = environ
        self._url = sockets.local_url(listeners, settings.scheme)
        self._command = f"curl {self._url}/ping"
        self._endpoint = PipelineEndpoint(self._stages, settings)
        workspace.url.write_text(self._url)
        app = app_of(
            self._endpoint.respond,
            settings.max_payload_bytes,
            refused=self._endpoint.refused,
            held=BodyMemory(settings.max_decoded_bytes).held,
            only_once=CUSTOM_ATTRIBUTES,
            ends_with_client=True,
        )
        self._nginx_program = config.program(settings)
        self._files = FrontFiles(settings, workspace.nginx)
        self._server = HttpServer(app if self._nginx_program else guarded(app, guard_of(settings)))
        self._nginx: ChildProcess | None = None

        def suggest(line: str) -> None:
            """Suggests the first stage's request for the pipeline."""
            self._command = command_in(line_text(line), self._url) or self._command

        self._children = [
            ChildProcess(
                stage.process(model_server),
                may_restart=lambda _child: self._endpoint.is_ready,
                heard=suggest if stage is self._stages[0] else lambda _line: None,
                show=partial(show_of_stage, stage.number),
            )
            for stage in self._stages
        ]
        self._run_loop = RunLoop(settings.stop_seconds)
        self._tasks: list[asyncio.Task[None]] = []

    async def serve(self) -> int:
        return await self._run_loop.serve_and_drain(self._start_and_watch(), self._drain)

    async def _start_and_watch(self) -> None:
        if self._nginx_program is None:
            log.warning("%s", NO_NGINX)
            await self._server.listen(self._listeners)
        else:
            await self._server.listen_at(self._workspace.client_socket)
            given = self._files, self._configure_nginx, self._listeners, self._environ
            self._nginx = ChildProcess(nginx_process(self._nginx_program, *given))
            self._tasks.append(asyncio.create_task(self._files.follow(self._configure_nginx, self._nginx)))
        log.info("listening on %s", sockets.shown(self._listeners, self._settings.scheme))
        for stage in self._stages:
            log.info("%s: serving %s on port %d", stage.name, stage.archive, stage.port)
        self._tasks += [asyncio.create_task(child.run()) for child in self._all_children()]
        while await self._endpoint.faults():
            await self._watch_for(TICK_SECONDS)
        self._endpoint.begin_serving()
        reach = sockets.reach(self._listeners, with_key=self._settings.api_keys is not None)
        log.info("%s", ready_line(f"{self._url}, {reach}", self._command, self._settings.api_keys))
        while True:
            await self._watch_for(1.0)

    def _configure_nginx(self) -> None:
        proxy = proxy_on(self._listeners, self._workspace, web=(), keys=self._files.keys)
        seconds = int(self._settings.request_timeout_seconds) + MORE_SECONDS
        write_config(self._workspace, config.pipeline_config(proxy, self._settings, self._workspace, seconds))

    def _all_children(self) -> list[ChildProcess]:
        return [*([] if self._nginx is None else [self._nginx]), *self._children]

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

    async def _drain(self, stop_requested: bool) -> None:
        """Answers requests under way, then stops all stages at once."""
        deadline = time.monotonic() + self._settings.stop_seconds
        if self._endpoint.is_ready:
            await self._run_loop.accept_pending(self._listeners, deadline)
        ports = [self._listeners[0].getsockname()[1]]
        if self._nginx is None:  # else it alone uses the listeners
            self._server.close()
        for listener in self._listeners:
            listener.close()

        async def stop_all(deadline: float) -> None:
            if self._nginx is not None:
                await self._nginx.stop(deadline - time.monotonic())
            await self._server.drain(deadline - time.monotonic())
            seconds = max(deadline - time.monotonic(), LAST_STEPS_SECONDS)
            await asyncio.gather(*(child.stop(seconds) for child in self._children))
            for stage in self._stages:
                stage.close()

        children = self._all_children()
        await self._run_loop.stop(stop_all, children, deadline, lambda: sockets.connections(ports))
        for stage in self._stages if stop_requested else ():
            log.info("%s: %s", stage.name, stage.summary())
