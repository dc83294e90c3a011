"""Polls the model servers for the state of their models, often while they load, for `Readiness`."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
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
TURN_PAUSE_SECONDS: Final = 1.0
PAUSE_SECONDS_A_MODEL: Final = 0.02
"""With hundreds of models their statuses are requested less often, to save processor time."""

MISSES: Final = 3
"""Failed status calls in a row after which a serving instance counts as unreachable."""

METHOD: Final = "/tensorflow.serving.ModelService/GetModelStatus"
NO_ANSWER: Final = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE"})

Get = Callable[[str, int, str, float], Awaitable[HttpResponse]]
Answers = Callable[[Instance, float], bool]

States = Mapping[int, ServableState]
"""An instance's states of a model, by version."""

Heard = Callable[[str, States], None]
"""Function that gets the name of a model and what an instance says of it."""


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
    """Keeps `Readiness` up to date about the models that it expects, and calls ``heard`` with each answer.

    ``in_turn`` says that there may be hundreds: while nothing happens, one of them is asked about a second.
    """

    def __init__(
        self,
        readiness: Readiness,
        *,
        in_turn: bool = False,
        heard: Heard = lambda _model, _states: None,
        get: Get = get_async,
        answers: Answers = answers_grpc,
    ) -> None:
        self._instances: Sequence[Instance] = ()
        self._readiness = readiness
        self._in_turn = in_turn
        self._heard = heard
        self._get = get
        self._answers = answers
        self._turn = 0
        self._misses: Counter[int] = Counter()

    def expect(self, instances: Sequence[Instance], models: Mapping[str, Iterable[int]]) -> None:
        """Names the model servers to ask, and the versions of models that each has to have."""
        self._instances = instances
        self._readiness.expect(instances, models)

    async def until(self, holds: Callable[[], bool], models: Iterable[str] = ()) -> None:
        """Asks about these models, or all that are not available, until that holds; ever less often."""
        began = time.monotonic()
        while True:
            await self.refresh(models or {servable.model for servable in self._readiness.lacking()})
            if holds():
                return
            await asyncio.sleep(loading_pause(time.monotonic() - began))

    async def until_available(self) -> None:
        """Returns once every version is AVAILABLE, or one has failed for good."""
        await self.until(lambda: not self._readiness.missing() or self._readiness.failure() is not None)

    async def forever(self) -> None:
        """Asks now and then; at once, and until all are available again, after an instance has died."""
        disturbed = self._readiness.disturbed
        while True:
            models = self._readiness.models()
            pause_seconds = max(SERVING_PAUSE_SECONDS, len(models) * PAUSE_SECONDS_A_MODEL)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TURN_PAUSE_SECONDS if self._in_turn else pause_seconds):
                    await disturbed.wait()
            if disturbed.is_set():
                await self.until(lambda: self._readiness.missing() is None)
                disturbed.clear()
            elif self._in_turn and models:
                self._turn += 1
                await self.refresh([models[self._turn % len(models)]])
            else:
                await self.refresh(models)

    async def refresh(self, models: Iterable[str]) -> None:
        """Asks all instances about these models once, concurrently; without any, only if they answer."""
        asked = tuple(models) or ("",)
        await asyncio.gather(*(self._poll(instance, asked) for instance in self._instances))

    async def _poll(self, instance: Instance, models: Iterable[str]) -> None:
        for model in models:
            try:
                states = await self._states(instance, model)
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
            self._heard(model, states)

    async def _states(self, instance: Instance, model: str) -> States:
        """The states of a model's versions; empty if the model server does not know the model (yet).

        Raises UpstreamError or ValueError if it does not answer.
        """
        path = f"/v1/models/{quote(model, safe='')}"
        reply = await self._get(instance.host, instance.rest_port, path, ONE_API_SECONDS)
        return {} if reply.status == HTTPStatus.NOT_FOUND or not model else read_status(reply.body)
