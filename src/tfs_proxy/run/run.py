"""One serving stack: opens the archive, starts every process, reports readiness, drains at the end.

start-up: cli -> settings -> archive -> supervisor.plan -> supervisor.process -> supervisor.health
"""

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tfs_proxy.model.report.first_request import FirstRequest, ready_line
from tfs_proxy.run.entrances import Entrances
from tfs_proxy.run.generation import Serving
from tfs_proxy.run.host import sockets
from tfs_proxy.run.host.processes import Orphans
from tfs_proxy.run.host.sockets import Listener
from tfs_proxy.run.host.watchdog import Watchdog, guarded_workspace
from tfs_proxy.run.host.workspace import LONGEST_PATH
from tfs_proxy.run.logs.run_records import RunRecords
from tfs_proxy.run.opening import ServeRequest
from tfs_proxy.run.readiness import Phase
from tfs_proxy.run.run_loop import LAST_STEPS_SECONDS, RunLoop, together
from tfs_proxy.run.run_status import RunStatus
from tfs_proxy.run.stack import ServingStack, StackHost
from tfs_proxy.run.succession import LONGEST_PATH_WITHIN, Generations
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.layout import Workspace

if TYPE_CHECKING:
    from tfs_proxy.run.reloading.reloading import Reloading

log = logging.getLogger(__name__)


async def serve(settings: Settings, listener: Listener, request: ServeRequest) -> int:
    """Serves until SIGTERM, SIGINT or SIGHUP; returns 0 then.

    Raises SettingsError for changes that can't be followed, StopServing if the run can't begin or go on.
    ``listener`` is closed at the end.
    """
    if settings.follows_changes:
        from tfs_proxy.run.reloading.reloading import refuse_unusable_reload

        refuse_unusable_reload(settings, request)
    longest_path = LONGEST_PATH_WITHIN if settings.follows_changes else LONGEST_PATH
    with guarded_workspace(settings.home, longest_path) as (workspace, watchdog):
        return await Supervisor(settings, listener, request, workspace, watchdog).run()


class Supervisor:
    """One run: everything between the open port and the exit status."""

    def __init__(
        self,
        settings: Settings,
        listener: Listener,
        request: ServeRequest,
        workspace: Workspace,
        watchdog: Watchdog,
    ) -> None:
        self._settings, self._listener, self._workspace = settings, listener, workspace
        self._records = RunRecords(settings, request.environ, workspace, listener)
        self._reloading = _reloading(settings, request)
        host = StackHost(workspace, watchdog, self._records.log)
        self._entrances = Entrances(settings, workspace, listener, request.environ)
        self._generations = Generations(settings, request, host, self._entrances)
        self._status = RunStatus(
            settings, self._records, workspace, self._stack, self._entrances.grpc_routes.routes
        )
        self._control_api = self._status.control_api
        self._orphans = Orphans()
        self._run_loop = RunLoop(settings.stop_seconds)
        self._stack.children.each_tick = self._tick

    @property
    def _stack(self) -> ServingStack:
        return self._generations.stack

    async def run(self) -> int:
        await self._run_loop.run(self._start_and_watch(), self._drain)
        return 0

    async def _start_and_watch(self) -> None:
        await self._open_listeners()
        serving = await self._expect()
        await self._start(serving)
        self._begin_serving(serving.prepared.first_request)
        if self._reloading is None:
            await self._generations.watch_forever()
        else:
            following = self._reloading.run(self._generations, self._status)
            await together(self._generations.watch_forever(), following)

    async def _open_listeners(self) -> None:
        """From here on every request gets an answer."""
        await self._control_api.open(self._workspace.control_socket, self._workspace.client_socket)
        self._entrances.open(self._stack.children)
        count_early = None if self._entrances.behind_nginx else self._records.note_early
        await self._control_api.stand_in(self._entrances.web, count_early)
        log.info("listening on http://%s", sockets.shown_address(self._listener))

    async def _expect(self) -> Serving:
        if self._reloading is not None:
            self._reloading.look()
        prepared = await self._stack.open_archive()
        self._stack.web = self._entrances.web
        planned = await self._stack.expect(prepared, self._entrances.port)
        deployment = replace(planned.deployment, counts_requests=not self._entrances.behind_nginx)
        self._status.expect(planned, deployment)
        serving = Serving(prepared, planned, deployment)
        self._generations.current.serving = serving
        return serving

    async def _start(self, serving: Serving) -> None:
        """Starts everything, and returns once it is ready."""
        children = self._stack.children
        self._entrances.start_grpc_router(children, serving.deployment)
        # A worker that is still loading would take code that is changed from now on, before it is tried.
        every_worker = self._settings.reload
        await self._stack.start_in_time(serving.planned, serving.prepared, every_worker=every_worker)
        if children.grpc_router is not None:
            await children.watch_during(self._entrances.listen_for_grpc())
        leading = self._entrances.lead_http_to(children, serving.deployment, self._stack.web)
        await children.watch_during(leading)

    def _begin_serving(self, first: FirstRequest) -> None:
        self._stack.begin_serving()
        self._lead_grpc()
        self._control_api.release()
        self._status.warm_up()
        url = sockets.local_url(self._listener)
        log.info("%s", ready_line(url, first.command(url)))

    def _tick(self) -> bool:
        """Handles changes; True if requests have ended since the last time."""
        self._orphans.collect()
        self._lead_grpc()
        return self._records.read()

    def _lead_grpc(self) -> None:
        self._entrances.lead_grpc_to(self._stack.readiness, self._generations.current.workspace)

    async def _drain(self, stop_requested: bool) -> None:
        """Stops accepting, lets requests finish, then ends the rest in reverse order; bounded in time."""
        readiness = self._stack.readiness
        starting = readiness.phase is Phase.STARTING
        deadline = time.monotonic() + (LAST_STEPS_SECONDS if starting else self._settings.stop_seconds)
        readiness.phase = Phase.STOPPING
        if stop_requested:
            await self._run_loop.accept_pending(self._entrances.public(), deadline)
        self._entrances.close_public()
        if starting:
            self._stack.abandon_loading()
        reading = asyncio.create_task(self._records.keep_reading())
        try:
            await self._run_loop.stop(self._stop_children(deadline), self._generations.children())
        finally:
            reading.cancel()
        self._stack.close()
        self._entrances.close()
        self._control_api.close()
        self._records.close()

    async def _stop_children(self, deadline: float) -> None:
        children = self._stack.children
        if children.nginx is not None:
            await children.nginx.stop(deadline - time.monotonic())
        if children.grpc_router is not None:
            await children.grpc_router.stop(max(deadline - time.monotonic(), LAST_STEPS_SECONDS))
            self._entrances.grpc_routes.end()
        await self._stack.stop_workers(deadline - time.monotonic())
        await self._generations.stop_former(deadline)
        await self._stack.stop_model_servers(max(deadline - time.monotonic(), LAST_STEPS_SECONDS))


def _reloading(settings: Settings, request: ServeRequest) -> "Reloading | None":
    if not settings.follows_changes:
        return None
    from tfs_proxy.run.reloading.reloading import Reloading

    return Reloading(settings, request)
