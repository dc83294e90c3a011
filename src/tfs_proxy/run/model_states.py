"""The states of models on model servers, which are polled for them: often while they load."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from itertools import count, product
from typing import Final
from urllib.parse import quote

from msgspec import Struct

from tfs_proxy.run.host.waiting import in_daemon_thread
from tfs_proxy.values.deployment import Instance
from tfs_proxy.values.errors import ModelLoadError, UpstreamError, UpstreamTimeout
from tfs_proxy.wire.grpc_codes import GrpcCode
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
"""While nothing happens, one of the models is asked about this often: there may be hundreds."""

MISSES: Final = 3
"""Failed status calls in a row after which a serving instance counts as unreachable."""

METHOD: Final = "/tensorflow.serving.ModelService/GetModelStatus"
NO_ANSWER: Final = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE"})

AVAILABLE = "AVAILABLE"
ENDED = "END"
EXHAUSTED = GrpcCode.RESOURCE_EXHAUSTED.name


class ExpectedVersion(Struct, frozen=True):
    """One version of a model on one instance; None stands for any version that the instance has."""

    instance: int
    model: str
    version: int | None

    def __str__(self) -> str:
        return f"model {self.model}" + ("" if self.version is None else f" version {self.version}")


class ServableState(Struct, frozen=True):
    """TF Serving's state of a version, and its error (docs/reference/tensorflow-serving.md)."""

    state: str = "START"
    error: str = ""

    @property
    def available(self) -> bool:
        return self.state == AVAILABLE

    @property
    def failed(self) -> bool:
        return self.state == ENDED and bool(self.error)

    @property
    def unloaded(self) -> bool:
        """True if it was unloaded on request, which is not a failure."""
        return self.state == ENDED and not self.error


NO_VERSION = ServableState("not loaded: the model server has found no version of it")


def read_status(body: bytes) -> dict[int, ServableState]:
    """The answer of ``GET /v1/models/NAME`` as state by version. Raises ValueError if it is not one."""
    states: dict[int, ServableState] = {}
    try:
        for entry in json.loads(body)["model_version_status"]:
            status = entry.get("status", {})
            code = status.get("error_code", "OK")
            message = str(status.get("error_message", ""))
            if code == EXHAUSTED and EXHAUSTED not in message:
                message = f"{EXHAUSTED}: {message}"  # which the message alone may not tell
            states[int(entry["version"])] = ServableState(entry["state"], "" if code == "OK" else message)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a model status: {error!r}") from error
    return states


def state_of(servable: ExpectedVersion, states: Mapping[int, ServableState]) -> ServableState:
    """The state of ``servable`` among those of its model; a missing version has not begun to load.

    Of a model whose versions change, it is that of the version closest to serving.
    """
    if servable.version is not None:
        return states.get(servable.version, ServableState())
    return min(
        states.values(),
        key=lambda state: (not state.available, state.state == ENDED, state.unloaded),
        default=NO_VERSION,
    )


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


class ModelStates:
    """States of the models that model servers have to have; the one place that polls for them.

    With ``are_many``, those of many archives, one that has failed concerns only its own requests. ``heard``
    is called with each answer.
    """

    def __init__(
        self,
        *,
        are_many: bool = False,
        heard: Heard = lambda _model, _states: None,
        get: Get = get_async,
        answers: Answers = answers_grpc,
    ) -> None:
        self.instances: Sequence[Instance] = ()
        """Model servers to ask."""

        self.servables: dict[ExpectedVersion, ServableState] = {}
        """State of each version that has to be available."""

        self.load_seconds: dict[ExpectedVersion, float] = {}
        """Duration of the last load of each version that has one."""

        self.reported: dict[tuple[int, str], States] = {}
        """Last states by version of an instance's model, versions that nobody expects among them."""

        self.unreachable: set[int] = set()
        """Numbers of instances that have not answered since they started or died."""

        self.disturbed = asyncio.Event()
        """Event that is set once an instance has died, until all versions are available again."""

        self._began: dict[int, float] = {}
        """Time when each instance began to load, by its number and the monotonic clock."""

        self._misses: Counter[int] = Counter()
        """Calls in a row that an instance has not answered."""

        self._are_many = are_many
        """True if the models are those of many archives."""

        self._heard = heard
        """Function that is called with each answer."""

        self._get = get
        """Function that asks over REST."""

        self._answers = answers
        """Function that tells whether an instance answers over gRPC."""

    def expect(self, instances: Sequence[Instance], models: Mapping[str, Iterable[int]]) -> None:
        """Names every version that has to be AVAILABLE; of a model without versions, any one has to be."""
        self.instances = instances
        for instance in instances:
            self.unreachable.add(instance.index)
            self._began[instance.index] = time.monotonic()
            for model, versions in models.items():
                for version in tuple(versions) or (None,):
                    self.servables[ExpectedVersion(instance.index, model, version)] = ServableState()

    def expect_more(self, model: str, versions: Iterable[int], load_seconds: float) -> None:
        """Names versions that are AVAILABLE, and must become so again whenever an instance has died."""
        for instance, version in product(self.instances, versions):
            servable = ExpectedVersion(instance.index, model, version)
            self.servables[servable] = ServableState(AVAILABLE)
            self.load_seconds[servable] = load_seconds

    def forget(self, model: str) -> None:
        """Expects a model no longer."""
        for servable in [servable for servable in self.servables if servable.model == model]:
            del self.servables[servable]
            self.load_seconds.pop(servable, None)
        for told in [told for told in self.reported if model in told]:
            del self.reported[told]

    def note(self, instance: int, model: str, states: States) -> None:
        """Notes an instance's answer on a model; a version that it does not name has not begun to load."""
        self.unreachable.discard(instance)
        self.reported[instance, model] = states
        for servable in self.servables:
            if (servable.instance, servable.model) == (instance, model):
                was_available = self.servables[servable].available
                self.servables[servable] = state_of(servable, states)
                if self.servables[servable].available and not was_available:
                    self.load_seconds[servable] = time.monotonic() - self._began.get(
                        instance, time.monotonic()
                    )

    def lose(self, instance: int) -> None:
        """Notes that an instance has died: nothing on it is available until it reports so again."""
        self.unreachable.add(instance)
        self._began[instance] = time.monotonic()
        for servable in self.servables:
            if servable.instance == instance:
                self.servables[servable] = ServableState()
        self.disturbed.set()

    def available(self, model: str) -> Collection[int]:
        """The versions of a model that an instance has, those that nobody expects among them."""
        reported = (
            states
            for (instance, of_model), states in self.reported.items()
            if of_model == model and instance not in self.unreachable
        )
        return {version for states in reported for version, state in states.items() if state.available}

    def missing(self, models: Collection[str] | None = None) -> str | None:
        """The first version, of these models or of all, that is not AVAILABLE, as a phrase; None if none."""
        if self.unreachable:
            return f"the model server does not answer yet (instance {min(self.unreachable)})"
        for servable, state in self.servables.items():
            is_awaited = not state.available and not (servable.version is None and state.unloaded)
            is_counted = not (self._are_many and state.failed) if models is None else servable.model in models
            if is_awaited and is_counted:
                return f"{servable} is {state.state}" + (f": {state.error}" if state.error else "")
        return None

    def models(self) -> Sequence[str]:
        """All models of which a version has to be available."""
        return tuple(dict.fromkeys(servable.model for servable in self.servables))

    def lacking(self) -> Sequence[ExpectedVersion]:
        """The versions that are not available now."""
        return [servable for servable, state in self.servables.items() if not state.available]

    def loaded(self) -> frozenset[int]:
        """The instances on which every version is available."""
        away = set(self.unreachable)
        # Of many models those that have failed keep no calls from the others.
        if self.disturbed.is_set() or not self._are_many:
            away |= {servable.instance for servable in self.lacking()}
        return frozenset(each.index for each in self.instances) - away

    def failure(self) -> str | None:
        """The first version that will not become AVAILABLE, with the model server's error."""
        for servable, state in self.servables.items():
            if state.failed:
                return f"{servable} can't be loaded: {state.error}".removesuffix(".")
        return None

    async def until(self, holds: Callable[[], bool], models: Iterable[str] = ()) -> None:
        """Asks about these models, or all that are not available, until that holds; ever less often."""
        began = time.monotonic()
        while True:
            await self.refresh(models or {servable.model for servable in self.lacking()})
            if holds():
                return
            await asyncio.sleep(loading_pause(time.monotonic() - began))

    async def until_available(self) -> None:
        """Returns once every version is AVAILABLE. Raises ModelLoadError if one has failed for good."""
        await self.until(lambda: not self.missing() or self.failure() is not None)
        if failure := self.failure():
            raise ModelLoadError(f"{failure}.")

    async def forever(self) -> None:
        """Asks about one in turn; at once, and until all are available again, after an instance has died."""
        for turn in count():
            with suppress(TimeoutError):
                async with asyncio.timeout(SERVING_PAUSE_SECONDS):
                    await self.disturbed.wait()
            if self.disturbed.is_set():
                await self.until(lambda: self.missing() is None)
                self.disturbed.clear()
            else:
                models = self.models() or ("",)
                await self.refresh([models[turn % len(models)]])

    async def refresh(self, models: Iterable[str]) -> None:
        """Asks all instances about these models once, concurrently; without any, only if they answer."""
        asked = tuple(models) or ("",)
        await asyncio.gather(*(self._poll(instance, asked) for instance in self.instances))

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
                    self.unreachable.add(instance.index)
                return
            self._misses[instance.index] = 0
            self.note(instance.index, model, states)
            self._heard(model, states)

    async def _states(self, instance: Instance, model: str) -> States:
        """The states of a model's versions; empty if the model server does not know the model (yet).

        Raises UpstreamError or ValueError if it does not answer.
        """
        path = f"/v1/models/{quote(model, safe='')}"
        reply = await self._get(instance.host, instance.rest_port, path, ONE_API_SECONDS)
        return {} if reply.status == HTTPStatus.NOT_FOUND or not model else read_status(reply.body)
