"""The run loop of `tfs-proxy endpoint`: reads the files, starts every endpoint, answers, drains, sums up."""

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct, field

from tfs_proxy.run.host import sockets
from tfs_proxy.run.host.sockets import Listener
from tfs_proxy.run.host.watchdog import Watchdog, guarded_workspace
from tfs_proxy.run.run_loop import LAST_STEPS_SECONDS, RunLoop
from tfs_proxy.settings.settings import Settings
from tfs_proxy.tools.endpoint.catalogue import Catalogue
from tfs_proxy.tools.endpoint.companions import CompanionOptions, Companions
from tfs_proxy.tools.endpoint.hosting import Hosting
from tfs_proxy.tools.endpoint.invoke import Invoker
from tfs_proxy.tools.endpoint.metrics import VariantMetrics
from tfs_proxy.tools.endpoint.operations import read_operations
from tfs_proxy.tools.endpoint.passage import MOST_BYTES
from tfs_proxy.tools.endpoint.server import EndpointServer
from tfs_proxy.tools.endpoint.starter import Choice, ContainerStarter, unused_choices
from tfs_proxy.values.layout import Workspace
from tfs_proxy.wire.http_server import HttpServer, app_of

log = logging.getLogger(__name__)

CALLS_AT_ONCE = 256

LARGER_BYTES = 16 * MOST_BYTES
"""Bytes read of a body over AWS's limit, so that it gets AWS's answer."""


class EndpointRequest(Struct, frozen=True):
    """Requests of the command line, besides the settings."""

    files: Sequence[Path]
    choices: Mapping[str, Choice]
    environ: Mapping[str, str]
    companions: CompanionOptions = field(default_factory=CompanionOptions)


def catalogue_of(files: Sequence[Path]) -> Catalogue:
    """Carries out the files in the order of AWS's operations. Raises SettingsError if one is refused."""
    catalogue = Catalogue()
    requests = [request for file in files for request in read_operations(file)]
    for operation in catalogue.created:
        for request in requests:
            if request.operation == operation:
                catalogue.create(request)
    return catalogue


async def serve(settings: Settings, listener: Listener, request: EndpointRequest) -> int:
    """Serves all endpoints until SIGTERM, SIGINT or SIGHUP; returns 0 then.

    Raises StopServing if an endpoint can't start. ``listener`` is closed at the end.
    """
    catalogue = catalogue_of(request.files)
    for name in unused_choices(request.choices, catalogue.models.values()):
        log.warning("--container %s: no model and no ContainerHostname of the files has this name", name)
    with guarded_workspace(settings.home) as (workspace, watchdog):
        return await EndpointRun(settings, listener, request, catalogue, workspace, watchdog).run()


class EndpointRun:
    def __init__(
        self,
        settings: Settings,
        listener: Listener,
        request: EndpointRequest,
        catalogue: Catalogue,
        workspace: Workspace,
        watchdog: Watchdog,
    ) -> None:
        self._settings, self._listener = settings, listener
        self._threads = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="container-client")
        starter = ContainerStarter(
            settings, workspace, watchdog, self._threads, request.environ, request.choices
        )
        self._hosting = Hosting(catalogue, starter)
        self._metrics = VariantMetrics()
        invoker = Invoker(self._metrics)
        self._companions = Companions(invoker, request.companions)
        front = EndpointServer(self._hosting, self._metrics, invoker, self._companions)
        self._server = HttpServer(app_of(front.respond, LARGER_BYTES))
        self._run_loop = RunLoop(settings.stop_seconds)
        self._ready = False

    async def run(self) -> int:
        await self._run_loop.run(self._start_and_watch(), self._drain)
        for line in self._metrics.table():
            log.info("%s", line)
        return 0

    async def _start_and_watch(self) -> None:
        await self._server.open([self._listener])
        url = sockets.local_url(self._listener)
        log.info("listening on %s", url)
        await self._hosting.start_all()
        for endpoint in self._hosting.endpoints.values():
            self._companions.of(endpoint)
        self._ready = True
        log.info("ready: boto3.client('sagemaker-runtime', endpoint_url='%s')", url)
        await self._hosting.watch()

    async def _drain(self, _stop_requested: bool) -> None:
        """Answers requests under way, then stops all containers at once."""
        deadline = time.monotonic() + self._settings.stop_seconds
        if self._ready:
            await self._run_loop.accept_pending([self._listener], deadline)
        await self._run_loop.stop(self._stop_all(deadline), self._hosting.children())
        self._listener.close()

    async def _stop_all(self, deadline: float) -> None:
        await self._server.drain(max(deadline - time.monotonic(), LAST_STEPS_SECONDS))
        await self._companions.close(max(deadline - time.monotonic(), LAST_STEPS_SECONDS))
        await self._hosting.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)
