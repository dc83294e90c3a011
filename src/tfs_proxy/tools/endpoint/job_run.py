"""One transform job under way: its instance, `tfs-proxy transform` as its engine, the hop between both."""

import asyncio
import json
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec

from tfs_proxy.run.host.processes import describe_exit
from tfs_proxy.run.process import ChildProcess
from tfs_proxy.tools.endpoint.aws_api import INVOKE, NO_ANSWER, AwsError, given_members
from tfs_proxy.tools.endpoint.container import HostedContainer
from tfs_proxy.tools.endpoint.instances import VariantInstance
from tfs_proxy.tools.endpoint.invoke import TIMED_OUT, Invocation, InvocationLimits
from tfs_proxy.tools.endpoint.job_request import JobRequest
from tfs_proxy.tools.endpoint.operations import warn_of_capture
from tfs_proxy.tools.endpoint.starter import ContainerStarter, image_id
from tfs_proxy.transform.run_statistics import BadRecord
from tfs_proxy.values.errors import StopServing
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.wire.error_body import error_text
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse
from tfs_proxy.wire.routes import INVOCATIONS

STARTUP_SECONDS = 1800.0
"""Limit for the first 200 of /ping in a batch job (docs/reference/sagemaker.md)."""

ENGINE_STOP_SECONDS = 10.0
"""Seconds from SIGTERM to SIGKILL: requests of a job that is stopped need no answer."""

ENGINE = "transform"
"""End of the name of a job's engine; its lines are in the stream that AWS calls data-log."""

LOOK_SECONDS = 0.5
ANSWER_BYTES = 100 * MEGABYTE
"""Limit of an answer within a pipeline: that of a request of a job."""

_SAID = "tfs-proxy: "

log = logging.getLogger(__name__)


class JobRun:
    """A job from the start of its containers to the end of its engine; ``url`` is that of this endpoint."""

    def __init__(self, request: JobRequest, starter: ContainerStarter, url: str) -> None:
        self._request = request
        self._starter = starter
        self._hop_url = f"{url}/transform-jobs/{request.name}{INVOCATIONS.path}"
        self._instance = VariantInstance(
            request.name, request.name, request.batch_model, STARTUP_SECONDS, starter
        )
        self._engine: ChildProcess | None = None

    async def run(self) -> None:
        """Returns once all objects are transformed. Raises StopServing with the reason if that fails.

        Leaves no process behind, also if it is cancelled.
        """
        try:
            warn_of_capture(f"transform job {self._request.name}", self._request.parameters)
            await self._instance.start()
            names = [each.name for each in self._instance.containers if each.child is None]
            if names and self._request.job.environment:
                text = "transform job %s: Environment has no effect on %s, which ran already"
                log.warning(text, self._request.name, ", ".join(names))
            await self._transform()
        finally:
            if self._engine is not None:
                await self._engine.stop(ENGINE_STOP_SECONDS)
            await self._instance.stop()

    async def _transform(self) -> None:
        containers = self._instance.containers
        programs = await asyncio.to_thread(lambda: {each.name: _program(each) for each in containers})
        served_as = await asyncio.to_thread(self._request.served_as, programs)
        # The container itself if there is only one, else the hop through all of them.
        engine_url = f"http://{containers[0].authority}" if len(containers) == 1 else self._hop_url
        folder = self._starter.new_folder()
        job = folder / "job.json"
        summary = folder / "summary.json"
        job.write_text(self._request.engine_file())
        allowed = [f"--files={folder}" for folder in self._starter.files.folders]
        words = ("transform", str(job), "--sagemaker-output", "--endpoint", engine_url, *allowed)
        self._engine = self._starter.start_command(
            f"{self._request.name}/{ENGINE}", (*words, "--served-as", served_as, "--summary", str(summary))
        )
        ended = asyncio.create_task(self._engine.ended())
        while not ended.done() and not self._instance.has_failed():
            await asyncio.wait({ended}, timeout=LOOK_SECONDS)
        if ended.done() and ended.result() == 0:
            return
        lost = "\n".join(_ends_of_containers(self._instance))
        raise StopServing(lost or _failure_reason(summary, ended.result(), self._engine.last_lines))

    async def hop(self, request: HttpRequest) -> HttpResponse:
        """Passes one request of the engine through all containers, as an endpoint does."""
        limits = InvocationLimits(self._request.job.timeout_seconds, ANSWER_BYTES)
        try:
            members = given_members(INVOKE, request.headers)
            invocation = Invocation(self._request.name, self._instance, members, limits)
            return await invocation.answer(request.body)
        except AwsError as error:
            original = str(error.members.get("OriginalMessage", ""))
            text = error.message.replace(original, error_text(original.encode()) or original)
            return HttpResponse(_status_for_engine(error), text.encode())

    def children(self) -> Iterator[ChildProcess]:
        yield from (each.child for each in self._instance.containers if each.child is not None)
        if self._engine is not None:
            yield self._engine


def _program(container: HostedContainer) -> str:
    """Identifies the program in a container; "" for this package's own."""
    if container.child is None:
        return container.authority
    return image_id(container.image) if container.image else ""


HOP = re.compile(rf"/transform-jobs/([^/]+){INVOCATIONS.path}")
"""Path of the hop through the containers of a job, with the job's name."""


def _status_for_engine(error: AwsError) -> int:
    """The container's own status; for none, the one by which the engine knows if to try again."""
    status = int(error.members.get("OriginalStatusCode", HTTPStatus.BAD_REQUEST))
    if status != NO_ANSWER:
        return status if status >= HTTPStatus.BAD_REQUEST else HTTPStatus.BAD_GATEWAY
    timed_out = error.members.get("OriginalMessage") == TIMED_OUT
    return HTTPStatus.GATEWAY_TIMEOUT if timed_out else HTTPStatus.BAD_GATEWAY


def _ends_of_containers(instance: VariantInstance) -> Iterator[str]:
    for container in instance.containers:
        if container.child is not None and container.has_ended:
            how = describe_exit(container.child.exit_status)
            yield f"The container {container.name} has ended with {how}.\n{container.last_lines}"


def _failure_reason(summary: Path, status: int, last_lines: Sequence[str]) -> str:
    """The first failures of the engine's summary; without one, its last words."""
    failures: list[Any] = []
    with suppress(OSError):
        failures = json.loads(summary.read_text())["failures"]
    if failures:
        first, *others = failures
        more = f" (and {len(others)} more)" if others else ""
        return f"{msgspec.convert({**first, 'name': first['object']}, BadRecord)}{more}"
    if status < 0:
        return f"tfs-proxy transform was ended by {describe_exit(status)}."
    said = [number for number, line in enumerate(last_lines) if line.startswith(_SAID)]
    return "\n".join(list(last_lines)[said[-1] :] if said else last_lines).removeprefix(_SAID)
