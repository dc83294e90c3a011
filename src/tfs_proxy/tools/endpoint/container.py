"""One container behind an endpoint: pings, requests, loads of its models, and its stop."""

import asyncio
import contextlib
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from contextlib import ExitStack
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse, IncompleteRead
from pathlib import Path, PurePosixPath
from typing import Self

from tfs_proxy.run.pipeline.passage import Container
from tfs_proxy.run.process import ChildProcess, ProcessState
from tfs_proxy.tools.endpoint.aws_api import NOT_READY, AwsError, model_error, refused
from tfs_proxy.values.errors import (
    ArchiveError,
    SettingsError,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from tfs_proxy.wire.connect import Connection, authority, end
from tfs_proxy.wire.error_body import connection_closed, error_text
from tfs_proxy.wire.http_client import Deadline, get_async
from tfs_proxy.wire.http_messages import HttpResponse, StreamedResponse
from tfs_proxy.wire.media_types import JSON
from tfs_proxy.wire.s3_client import S3_SCHEME

log = logging.getLogger(__name__)

PING_SECONDS = 2.0
"""Limit for /ping (docs/reference/sagemaker.md)."""

LOAD_SECONDS = 360.0
"""Limit for a load (docs/reference/sagemaker.md)."""

PART_BYTES = 1 << 16
"""Size of the largest part of an answer that is passed on as it comes."""


class ComingAnswer:
    """The answer to ``request`` on ``connection``, whose parts are read as they come.

    ``threads`` wait for it, until ``deadline``. All that waits raises UpstreamError.
    """

    def __init__(self, connection: Connection, threads: Executor, deadline: Deadline, request: bytes) -> None:
        self._connection = connection
        self._threads = threads
        self._deadline = deadline
        self._request = request
        self._answer = HTTPResponse(connection)

    async def begin(self) -> StreamedResponse:
        """Send the request, and wait for the head of the answer."""
        try:
            await self._in_thread(self._post)
        except BaseException:
            await self.aclose()
            raise
        return StreamedResponse(self._answer.status, self, dict(self._answer.headers.items()))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        part = await self._in_thread(self._read)
        if not part:
            raise StopAsyncIteration
        return part

    async def aclose(self) -> None:
        """Close the connection, from which a thread may be reading; the rest of the answer is lost."""
        end(self._connection)
        self._answer.close()

    async def _in_thread(self, step: Callable[[], bytes]) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._within_time, step)

    def _within_time(self, step: Callable[[], bytes]) -> bytes:
        self._connection.settimeout(self._deadline.to_read())
        try:
            return step()
        except TimeoutError as error:
            raise self._deadline.over() from error
        except (OSError, HTTPException) as error:
            raise UpstreamUnavailable(connection_closed(self._deadline.server)) from error

    def _post(self) -> bytes:
        self._connection.sendall(self._request)
        self._answer.begin()
        return b""

    def _read(self) -> bytes:
        """Read the next bytes of the answer, b"" at its end."""
        part = self._answer.read1(PART_BYTES)
        if not part and self._answer.length:
            raise IncompleteRead(part)
        return part


class HostedContainer(Container):
    """A container at ``host:port``; ``child`` is None if this process has not started it.

    Errors call it ``name``. ``image`` is what Docker runs, and sees the models' folder elsewhere.
    ``held`` holds its ports, and is closed at the end.
    """

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        threads: Executor,
        child: ChildProcess | None = None,
        *,
        image: str | None = None,
        held: ExitStack | None = None,
    ) -> None:
        super().__init__(name, host, port, threads)
        self.child = child
        self.image = image
        self._held = held or ExitStack()

    @property
    def authority(self) -> str:
        return authority(self.host, self.port)

    @property
    def has_ended(self) -> bool:
        return self.child is not None and self.child.state in {ProcessState.GAVE_UP, ProcessState.EXITED}

    @property
    def last_lines(self) -> str:
        return "" if self.child is None else "\n".join(list(self.child.last_lines)[-5:])

    async def is_healthy(self) -> bool:
        """True if /ping answers 200 in time."""
        try:
            return (await get_async(self.host, self.port, "/ping", PING_SECONDS)).status == HTTPStatus.OK
        except UpstreamError:
            return False

    async def stream(
        self, path: str, body: bytes, headers: Mapping[str, str], seconds: float
    ) -> StreamedResponse:
        """Its answer to a POST as it comes, of any status. It and its parts raise UpstreamError."""
        deadline = Deadline(self.name, seconds, seconds)
        opening = asyncio.get_running_loop().run_in_executor(self._threads, self._connections.open, seconds)
        request = self._connections.head("POST", path, body, headers) + body
        return await ComingAnswer(await opening, self._threads, deadline, request).begin()

    async def stop(self, seconds: float) -> None:
        """SIGTERM, then SIGKILL after ``seconds``; does nothing to one that this process has not started."""
        self.close()
        if self.child is not None:
            await self.child.stop(seconds)
        self._held.close()


Unpack = Callable[[str], Awaitable[tuple[str, str]]]
"""Unpacks the archive at an address; returns the model's id and the path that the container knows."""


class ManyModels:
    """The models of one container: ``prefix`` is the address above all archives.

    The least recently used are unloaded if the container has no memory for another; all of them at once
    after each request unless ``keeps`` says otherwise (ModelCacheSetting).
    """

    def __init__(self, container: HostedContainer, prefix: str, unpack: Unpack, *, keeps: bool) -> None:
        self._container = container
        self._prefix = prefix
        self._unpack = unpack
        self._keeps = keeps
        self._loaded: OrderedDict[str, str] = OrderedDict()  # ids by archive
        self._loading: dict[str, asyncio.Task[None]] = {}

    async def path_for(self, target: str, log_stream: str, seconds: float) -> str:
        """The path of requests for the archive ``target``, once it is loaded.

        Raises AwsError: ValidationError for a missing archive, ModelError if the container does not load it,
        ModelNotReadyException if it has not within ``seconds``, while the load goes on.
        """
        while target not in self._loaded:  # once more if another load has taken its memory
            task = self._loading.get(target)
            if task is None:
                task = self._loading[target] = asyncio.create_task(self._load(target, log_stream))
                task.add_done_callback(lambda _: self._loading.pop(target, None))
            try:
                async with asyncio.timeout(seconds):
                    await asyncio.shield(task)
            except TimeoutError:
                if task.done():
                    raise
                raise AwsError(NOT_READY, f"Model {target} is still being loaded; try again.") from None
        self._loaded.move_to_end(target)
        return f"/models/{self._loaded[target]}/invoke"

    async def answered(self, target: str, status: int) -> None:
        """Notes the answer's status: 404 says that the model is gone."""
        if status == HTTPStatus.NOT_FOUND:
            self._loaded.pop(target, None)
        elif not self._keeps:
            await self._unload(target)

    async def _load(self, target: str, log_stream: str) -> None:
        try:
            model_id, url = await self._unpack(joined(self._prefix, target))
        except (ArchiveError, SettingsError) as error:
            raise refused(f"Failed to download the model data of {target}: {error}") from error
        response = await self._asked_to_load(model_id, url)
        while response.status == HTTPStatus.INSUFFICIENT_STORAGE and self._loaded:
            await self._unload(next(iter(self._loaded)))
            response = await self._asked_to_load(model_id, url)
        if response.status not in {HTTPStatus.OK, HTTPStatus.CONFLICT}:
            text = error_text(response.body) or response.body.decode(errors="replace")
            raise model_error(self._container.name, response.status, text, log_stream)
        log.info("%s has loaded %s", self._container.name, target)
        self._loaded[target] = model_id

    async def _asked_to_load(self, model_id: str, url: str) -> HttpResponse:
        body = json.dumps({"model_name": model_id, "url": url}).encode()
        headers = {"Content-Type": JSON}
        return await self._container.ask("POST", "/models", body, headers, LOAD_SECONDS)

    async def _unload(self, target: str) -> None:
        model_id = self._loaded.pop(target, None)
        if model_id is None:  # a concurrent request has done it
            return
        with contextlib.suppress(UpstreamTimeout):
            await self._container.ask("DELETE", f"/models/{model_id}", None, {}, LOAD_SECONDS)


def joined(prefix: str, target: str) -> str:
    """The address of the archive ``target`` below ``prefix``. Raises AwsError if it would be outside."""
    relative = PurePosixPath(target)
    if relative.is_absolute() or ".." in relative.parts:
        raise refused(f"TargetModel {target} must be a path below {prefix}.")
    if prefix.startswith(S3_SCHEME):
        return f"{prefix.rstrip('/')}/{target}"
    return str(Path(prefix) / relative)
