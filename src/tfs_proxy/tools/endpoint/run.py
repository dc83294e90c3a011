"""The run loop of `tfs-proxy endpoint`: reads the files, starts every endpoint, answers, drains."""

import asyncio
import json
import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from itertools import chain
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.run.guarded import guard_of, guarded
from tfs_proxy.run.host import sockets
from tfs_proxy.run.host.sockets import Listeners
from tfs_proxy.run.host.workspace import run_workspace
from tfs_proxy.run.run_loop import RunLoop, last_seconds
from tfs_proxy.settings.settings import Settings
from tfs_proxy.tools.endpoint.asynchronous import AsyncQueues
from tfs_proxy.tools.endpoint.aws_api import AwsError, answer_to
from tfs_proxy.tools.endpoint.catalogue import Catalogue
from tfs_proxy.tools.endpoint.control_plane import TARGET, ControlPlane
from tfs_proxy.tools.endpoint.hosting import HostedEndpoint, Hosting
from tfs_proxy.tools.endpoint.invoke import invoke, refuse_large
from tfs_proxy.tools.endpoint.job_run import JobRun
from tfs_proxy.tools.endpoint.jobs import LogStreams, TransformJobs
from tfs_proxy.tools.endpoint.operations import read_operations
from tfs_proxy.tools.endpoint.starter import Choice, ContainerStarter, unused_choices
from tfs_proxy.tools.endpoint.stream import invoke_stream
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.layout import LocalFiles, Workspace
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse, StreamedResponse
from tfs_proxy.wire.http_server import HttpServer, app_of

log = logging.getLogger(__name__)

INTERNAL = "InternalFailure"
REQUEST_ID = "x-amzn-RequestId"
_CALL = re.compile(r"/endpoints/([^/]+)/([a-z-]+)")

RuntimeAnswer = HttpResponse | StreamedResponse
RuntimeCall = Callable[[HostedEndpoint, HttpRequest], Awaitable[RuntimeAnswer]]


CALLS_AT_ONCE = 256

LARGER_BYTES = 101 * MEGABYTE
"""Bytes read of a body: of one over AWS's limit, so that it gets AWS's answer, and of a transform job's."""


class EndpointOptions(Struct, frozen=True):
    """Options of the command line."""

    catalogue: Catalogue
    """Models, configs and endpoints that the files create."""

    files: LocalFiles
    """Files of this machine that requests may name."""

    choices: Mapping[str, Choice]
    """Way to run a container, by the name of a model or a container."""

    environ: Mapping[str, str]
    """Environment for the containers' processes."""

    jobs: int
    """Number of transform jobs that run at once."""


def catalogue_of(configs: Sequence[Path], files: LocalFiles) -> Catalogue:
    """Carries out the requests in the order of AWS's operations. Raises SettingsError if one is refused."""
    catalogue = Catalogue(files)
    requests = [request for config in configs for request in read_operations(config)]
    for operation in catalogue.created:
        for request in requests:
            if request.operation == operation:
                catalogue.create(request)
    return catalogue


async def serve(settings: Settings, listeners: Listeners, options: EndpointOptions) -> int:
    """Serves all endpoints until SIGTERM, SIGINT or SIGHUP; returns 0 then.

    Raises StopServing if an endpoint can't start, SettingsError for keys or TLS. ``listeners`` are closed at
    the end.
    """
    for name in unused_choices(options.choices, options.catalogue.models.values()):
        log.warning("--container %s: no model and no ContainerHostname of the files has this name", name)
    if settings.secured:
        first = next(iter(settings.secured))
        raise SettingsError(f"{first} can't be used for the endpoint, which has no keys and no TLS.")
    with run_workspace(settings.home) as workspace:
        return await EndpointRun(settings, listeners, options, workspace).serve()


class EndpointRun:
    """Answers clients of AWS's two services; calls of the runtime are known by the end of their path."""

    def __init__(
        self,
        settings: Settings,
        listeners: Listeners,
        options: EndpointOptions,
        workspace: Workspace,
    ) -> None:
        self._settings = settings
        self._listeners = listeners
        self._threads = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="container-client")
        catalogue = options.catalogue
        logs = LogStreams(catalogue.jobs)
        starter = ContainerStarter(
            settings,
            workspace,
            self._threads,
            options.environ,
            options.choices,
            options.files,
            logs.hear,
        )
        self._hosting = Hosting(catalogue, starter)
        new_run = partial(JobRun, starter=starter, url=sockets.local_url(listeners))
        self._jobs = TransformJobs(catalogue, new_run, options.jobs)
        self._queues = AsyncQueues(options.files)
        self._control_plane = ControlPlane(self._hosting, self._jobs, logs)
        self._calls: dict[str, RuntimeCall] = {
            "invocations": invoke,
            "invocations-response-stream": invoke_stream,
            "async-invocations": self._queues.invoke,
        }
        guard = replace(guard_of(settings), is_endpoint=True)
        self._server = HttpServer(guarded(app_of(self._respond, LARGER_BYTES), guard))
        self._run_loop = RunLoop(settings.stop_seconds)
        self._ready = False

    async def serve(self) -> int:
        return await self._run_loop.serve_and_drain(self._start_and_watch(), self._drain)

    async def _start_and_watch(self) -> None:
        await self._server.listen(self._listeners)
        url = sockets.local_url(self._listeners)
        log.info("listening on %s", url)
        await self._hosting.start_all()
        for endpoint in self._hosting.endpoints.values():
            self._queues.of(endpoint)
        self._jobs.start_all()
        self._ready = True
        log.info("ready: boto3.client('sagemaker-runtime', endpoint_url='%s')", url)
        await self._hosting.watch()

    async def _drain(self, _stop_requested: bool) -> None:
        deadline = time.monotonic() + self._settings.stop_seconds
        if self._ready:
            await self._run_loop.accept_pending(self._listeners, deadline)
        children = chain(self._hosting.children(), self._jobs.children())
        ports = [self._listeners[0].getsockname()[1]]
        await self._run_loop.stop(self._stop_all, children, deadline, lambda: sockets.connections(ports))
        for listener in self._listeners:
            listener.close()

    async def _stop_all(self, deadline: float) -> None:
        await asyncio.gather(self._jobs.stop(), self._server.drain(last_seconds(deadline)))
        await self._queues.close(last_seconds(deadline))
        await self._hosting.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _respond(self, request: HttpRequest) -> RuntimeAnswer:
        """Answers one request; every answer has an id."""
        answer: RuntimeAnswer
        try:
            answer = await self._routed(request)
        except AwsError as error:
            answer = answer_to(error)
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            answer = answer_to(AwsError(INTERNAL, "The endpoint failed; its log has the reason."))
        return replace(answer, headers={**answer.headers, REQUEST_ID: str(uuid.uuid4())})

    async def _routed(self, request: HttpRequest) -> RuntimeAnswer:
        match = _CALL.fullmatch(request.path)
        if match and match[2] in self._calls and request.method == "POST":
            refuse_large(request.body)
            return await self._calls[match[2]](self._hosting.known(match[1]), request)
        if request.method == "POST" and request.path == "/" and TARGET in request.headers:
            return self._control_plane.respond(request)
        if request.method == "POST" and (hopped := await self._jobs.hop(request)) is not None:
            return hopped
        if request.path == "/ping" and request.method in {"GET", "HEAD"}:
            states = {name: endpoint.status for name, endpoint in self._hosting.endpoints.items()}
            well = all(status not in {"Creating", "Failed"} for status in states.values())
            status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
            return HttpResponse(status, json.dumps({"endpoints": states}).encode())
        text = f"{request.method} {request.path} is not a call of AWS's API, or /ping."
        return HttpResponse.error(HTTPStatus.NOT_FOUND, text)
