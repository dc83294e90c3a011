"""SageMaker's part in a multi-model container: finds the archive of a request, loads it, unloads others."""

import asyncio
import contextlib
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath

from tfs_proxy.archive.s3_client import S3_SCHEME
from tfs_proxy.endpoint.calls.errors import NOT_READY, AwsError, model_error, refused
from tfs_proxy.endpoint.containers.hosted import HostedContainer
from tfs_proxy.errors import ArchiveError, UpstreamTimeout
from tfs_proxy.wire.error_body import error_text
from tfs_proxy.wire.http_messages import HttpResponse

log = logging.getLogger(__name__)

OK, NOT_FOUND, LOADED_ALREADY, NO_MEMORY = 200, 404, 409, 507
LOAD_SECONDS = 360.0
"""How long a load may take (docs/reference/sagemaker.md)."""

Unpack = Callable[[str], Awaitable[tuple[str, str]]]
"""Has the archive at an address unpacked, and tells the model's id and the path that the container knows."""


class ManyModels:
    """The models of one container: ``prefix`` is what all archives are below.

    Those used longest ago are unloaded if the container has no memory for another; all of them at once
    after each request unless ``keeps`` says otherwise (ModelCacheSetting).
    """

    def __init__(self, container: HostedContainer, prefix: str, unpack: Unpack, *, keeps: bool) -> None:
        self._container, self._prefix, self._unpack, self._keeps = container, prefix, unpack, keeps
        self._loaded: OrderedDict[str, str] = OrderedDict()  # the id of each, by its archive
        self._loading: dict[str, asyncio.Task[None]] = {}

    async def path_for(self, target: str, log_stream: str, seconds: float) -> str:
        """Where a request for the archive ``target`` goes, once that is loaded.

        Raises AwsError: ValidationError for an archive that is not there, ModelError if the container does
        not load it, ModelNotReadyException if it has not within ``seconds``, while the load goes on.
        """
        while target not in self._loaded:  # once more if another load has taken its room at once
            task = self._loading.get(target)
            if task is None:
                task = self._loading[target] = asyncio.create_task(self._load(target, log_stream))
                task.add_done_callback(lambda _: self._loading.pop(target, None))
            await _within(task, seconds, target)
        self._loaded.move_to_end(target)
        return f"/models/{self._loaded[target]}/invoke"

    async def answered(self, target: str, status: int) -> None:
        """Note what a request for ``target`` was answered with: 404 says that the model is gone."""
        if status == NOT_FOUND:
            self._loaded.pop(target, None)
        elif not self._keeps:
            await self._unload(target)

    async def _load(self, target: str, log_stream: str) -> None:
        try:
            model_id, url = await self._unpack(joined(self._prefix, target))
        except ArchiveError as error:
            raise refused(f"Failed to download the model data of {target}: {error}") from error
        response = await self._asked_to_load(model_id, url)
        while response.status == NO_MEMORY and self._loaded:
            await self._unload(next(iter(self._loaded)))
            response = await self._asked_to_load(model_id, url)
        if response.status not in {OK, LOADED_ALREADY}:
            text = error_text(response.body) or response.body.decode(errors="replace")
            raise model_error(self._container.name, response.status, text, log_stream)
        log.info("%s has loaded %s", self._container.name, target)
        self._loaded[target] = model_id

    async def _asked_to_load(self, model_id: str, url: str) -> HttpResponse:
        body = json.dumps({"model_name": model_id, "url": url}).encode()
        headers = {"Content-Type": "application/json"}
        return await self._container.ask("POST", "/models", body, headers, LOAD_SECONDS)

    async def _unload(self, target: str) -> None:
        model_id = self._loaded.pop(target, None)
        if model_id is None:  # a request at the same time has done it
            return
        with contextlib.suppress(UpstreamTimeout):
            await self._container.ask("DELETE", f"/models/{model_id}", None, {}, LOAD_SECONDS)


async def _within(task: asyncio.Task[None], seconds: float, target: str) -> None:
    try:
        async with asyncio.timeout(seconds):
            await asyncio.shield(task)
    except TimeoutError:
        if task.done():
            raise
        raise AwsError(NOT_READY, f"Model {target} is still being loaded; try again.") from None


def joined(prefix: str, target: str) -> str:
    """The address of the archive ``target`` below ``prefix``; raises AwsError if it would be outside."""
    relative = PurePosixPath(target)
    if relative.is_absolute() or ".." in relative.parts:
        raise refused(f"TargetModel {target} must be a path below {prefix}.")
    if prefix.startswith(S3_SCHEME):
        return f"{prefix.rstrip('/')}/{target}"
    return str(Path(prefix) / relative)
