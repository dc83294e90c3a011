"""Polls the model servers for the state of their models, often while they load, for `Readiness`."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from tfs_proxy.run.host.waiting import in_daemon_thread
from tfs_proxy.run.readiness import Readiness, ServableState, read_status
from tfs_proxy.values.deployment import Instance
from tfs_proxy.values.errors import UpstreamError, UpstreamTimeout
from tfs_proxy.wire.http_client import get_async
from tfs_proxy.wire.http_messages import HttpResponse

POLL_SECONDS: Final = 2.0
ONE_API_SECONDS: Final = POLL_SECONDS / 2
"""Limit of a status call over REST, and then over gRPC."""

LOADING_PAUSE_SECONDS: Final = 0.01
LONGEST_LOADING_PAUSE_SECONDS: Final = 0.1
SHARE_OF_LOADING: Final = 0.02
"""Delay until a loaded model is noticed, as a share of the time that the load took."""

SERVING_PAUSE_SECONDS: Final = 2.0
PAUSE_SECONDS_A_MODEL: Final = 0.02
"""With hundreds of models their statuses are requested less often, to save processor time."""

MISSES: Final = 3
"""Failed status calls in a row after which a serving instance counts as unreachable."""

METHOD: Final = "/tensorflow.serving.ModelService/GetModelStatus"
NO_ANSWER: Final = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE"})

Get = Callable[[str, int, str, float], Awaitable[HttpResponse]]
Answers = Callable[[Instance, float], bool]


def answers_grpc(instance: Instance, timeout_seconds: float) -> bool:
    """Requests the status of no model over gRPC, whose threads are not those of REST; blocks.

    The refusal of such a call is an answer, too.
    """
    # Hardly any run needs it, and it takes 15 MB.
    import grpc

    from tfs_proxy.serving.upstream.grpc_channels import open_channel

    with open_channel(instance) as channel:
        try:
            channel.unary_unary(METHOD)(b"", timeout=timeout_seconds)
        except grpc.RpcError as error:
            return error.code().name not in NO_ANSWER
    return True


def loading_pause(elapsed_seconds: float) -> float:
    """Seconds until the next status call of a model that has been loading for so long.

    A short load is noticed at once, and a long one costs few calls.
    """
    pause_seconds = elapsed_seconds * SHARE_OF_LOADING
    return min(max(pause_seconds, LOADING_PAUSE_SECONDS), LONGEST_LOADING_PAUSE_SECONDS)


class ModelWatch:
    """Keeps `Readiness` up to date about models and versions."""

    def __init__(
        self,
        instances: Iterable[Instance],
        models: Iterable[str],
        readiness: Readiness,
        get: Get = get_async,
        answers: Answers = answers_grpc,
    ) -> None:
        self._instances = tuple(instances)
        self._models = tuple(models)
        self._readiness = readiness
        self._get = get
        self._answers = answers
        self._pause_seconds = max(SERVING_PAUSE_SECONDS, len(self._models) * PAUSE_SECONDS_A_MODEL)
        self._misses = dict.fromkeys((instance.index for instance in self._instances), 0)

    async def until_available(self) -> None:
        """Returns once every version is AVAILABLE, or one has failed for good."""
        began = time.monotonic()
        while self._readiness.missing() and not self._readiness.failure():
            await self.refresh()
            await asyncio.sleep(loading_pause(time.monotonic() - began))

    async def forever(self) -> None:
        """Refreshes every two seconds; at once, and then more often, after an instance has died."""
        disturbed_at: float | None = None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_seconds):
                    await self._readiness.disturbed.wait()
            await self.refresh()
            if self._readiness.missing() is None:
                self._readiness.disturbed.clear()
                disturbed_at = None
            elif self._readiness.disturbed.is_set():
                now = time.monotonic()
                disturbed_at = now if disturbed_at is None else disturbed_at
                await asyncio.sleep(loading_pause(now - disturbed_at))

    async def refresh(self, models: Iterable[str] = ()) -> None:
        """Requests the state of these models once, or of every one, from all instances concurrently."""
        asked = tuple(models) or self._models or ("",)
        await asyncio.gather(*(self._poll(instance, asked) for instance in self._instances))

    async def _poll(self, instance: Instance, models: Iterable[str]) -> None:
        for model in models:
            try:
                states = await self.states(instance, model)
            except (UpstreamError, ValueError) as error:
                # Requests may occupy all threads of its REST API: then its last states of models still hold.
                ask = partial(self._answers, instance, ONE_API_SECONDS)
                if isinstance(error, UpstreamTimeout) and await in_daemon_thread(ask, "busy model server"):
                    self._misses[instance.index] = 0
                    return
                # It may answer slowly: it is unreachable only after several misses in a row.
                self._misses[instance.index] += 1
                if self._misses[instance.index] >= MISSES:
                    self._readiness.unreachable.add(instance.index)
                return
            self._misses[instance.index] = 0
            self._readiness.note(instance.index, model, states)

    async def states(self, instance: Instance, model: str) -> Mapping[int, ServableState]:
        """The states of a model's versions; empty if the model server does not know the model (yet).

        Raises UpstreamError or ValueError if it does not answer.
        """
        path = f"/v1/models/{quote(model, safe='')}"
        reply = await self._get(instance.host, instance.rest_port, path, ONE_API_SECONDS)
        return {} if reply.status == HTTPStatus.NOT_FOUND or not model else read_status(reply.body)
