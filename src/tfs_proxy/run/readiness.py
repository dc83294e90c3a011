"""The run's readiness: its phase, the workers' heartbeats and TF Serving's state of every model version.

``/ping`` answers from `Readiness.reason`, ``/live`` from `Readiness.broken`; nothing here waits.
"""

import asyncio
import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from itertools import product

from msgspec import Struct

from tfs_proxy.run.heartbeats import Heartbeats
from tfs_proxy.values.deployment import Instance
from tfs_proxy.wire.grpc_codes import GrpcCode

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


FIRST = "starting"


class StartSteps:
    """The current step of the start, and the time spent in each."""

    def __init__(self) -> None:
        self.current = FIRST
        self._began: float | None = time.monotonic()
        self._seconds: dict[str, float] = {}

    def begin(self, step: str) -> None:
        self.end()
        self.current = step
        self._began = time.monotonic()

    def end(self) -> None:
        """Ends the current step; idempotent."""
        self._seconds = dict(self.seconds())
        self._began = None

    def seconds(self) -> Mapping[str, float]:
        """Seconds by step, including the current one."""
        if self._began is None:
            return self._seconds
        name = self.current.removeprefix(f"{FIRST}: ")
        return {**self._seconds, name: self._seconds.get(name, 0.0) + time.monotonic() - self._began}


class StackState(Enum):
    """States of a stack, and of a run; one that is gone has none.

    Each has the word of ``/metrics`` for a run, and that for one of many models.
    """

    STARTING = "starting", "loading"
    READY = "serving", "ready"
    STOPPING = "stopping", "unloading"
    FAILED = "failed", "failed"

    @property
    def of_run(self) -> str:
        return self.value[0]

    @property
    def of_model(self) -> str:
        return self.value[1]


RUN_STATES = (StackState.STARTING, StackState.READY, StackState.STOPPING)
"""A run that fails ends."""


class Readiness:
    """The run's readiness as the run loop last saw it."""

    def __init__(
        self,
        heartbeats: Heartbeats,
        down: Callable[[], Collection[str]] = tuple,
        *,
        are_many: bool = False,
    ) -> None:
        self._are_many = are_many
        """True if there are many models, a failed one of which concerns only its own requests."""

        self.state = StackState.STARTING
        """Phase of the run or stack."""

        self.steps = StartSteps()
        """Steps of the start, with their times."""

        self.load_seconds: dict[ExpectedVersion, float] = {}
        """Duration of the last load of each version that has one."""

        self._began: dict[int, float] = {}
        """Time when each instance began to load, by its number and the monotonic clock."""

        self.heartbeats = heartbeats
        """Watch over the workers."""

        self._down = down
        """Question for the names of processes that are being restarted."""

        self.servables: dict[ExpectedVersion, ServableState] = {}
        """State of each version that has to be available."""

        self.unreachable: set[int] = set()
        """Numbers of instances that have not answered since they started or died."""

        self.reported: dict[tuple[int, str], Mapping[int, ServableState]] = {}
        """Last states by version of an instance's model, versions that nobody expects among them."""

        self.disturbed = asyncio.Event()
        """Event that is set once an instance has died, until all versions are available again."""

        self._common: Readiness | None = None
        """Readiness of model servers that many stacks share, if this is that of one of these."""

        self._common_models: Collection[str] = ()
        """Models that they have for it."""

    def rely_on(self, common: "Readiness", models: Collection[str]) -> None:
        """Has these models looked up in the readiness of the model servers that have them."""
        self._common = common
        self._common_models = models

    def begin_serving(self) -> None:
        self.state = StackState.READY
        self.steps.end()

    def begin_stopping(self) -> None:
        self.state = StackState.STOPPING

    def expect(self, instances: Iterable[Instance], models: Mapping[str, Iterable[int]]) -> None:
        """Names every version that has to be AVAILABLE; of a model without versions, any one has to be."""
        for instance in instances:
            self.unreachable.add(instance.index)
            self._began[instance.index] = time.monotonic()
            for model, versions in models.items():
                for version in tuple(versions) or (None,):
                    self.servables[ExpectedVersion(instance.index, model, version)] = ServableState()

    def expect_more(
        self, instances: Iterable[Instance], model: str, versions: Iterable[int], load_seconds: float
    ) -> None:
        """Names versions that are AVAILABLE, and must become so again whenever an instance has died."""
        for instance, version in product(instances, versions):
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

    def note(self, instance: int, model: str, states: Mapping[int, ServableState]) -> None:
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

    def missing(self, models: Collection[str] = ()) -> str | None:
        """The first version, of these models or of all, that is not AVAILABLE, as a phrase; None if none."""
        if self._common is not None:
            return self._common.missing(self._common_models)
        if self.unreachable:
            return f"the model server does not answer yet (instance {min(self.unreachable)})"
        for servable, state in self.servables.items():
            is_awaited = not state.available and not (servable.version is None and state.unloaded)
            is_counted = servable.model in models if models else not (self._are_many and state.failed)
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
        """The instances on which every version is available; none before the run serves."""
        if self.state is StackState.STARTING:
            return frozenset()
        away = {servable.instance for servable in self.lacking()}
        return frozenset(servable.instance for servable in self.servables) - away

    def failure(self) -> str | None:
        """The first version that will not become AVAILABLE, with the model server's error."""
        for servable, state in self.servables.items():
            if state.failed:
                return f"{servable} can't be loaded: {state.error}".removesuffix(".")
        return None

    def away(self) -> str | None:
        """The version that will be back soon, as a phrase; None if waiting does not help."""
        return self.missing() if self.state is StackState.READY else None

    def reason(self) -> str | None:
        """The reason why requests can't be served now; None if they can."""
        if self.state is StackState.STARTING:
            # A model without any version may never get one.
            missing = (servable for servable, state in self.servables.items() if state is NO_VERSION)
            return self.steps.current + next((f"; {each} is {NO_VERSION.state}" for each in missing), "")
        if self.state is StackState.STOPPING:
            return "stopping"
        return self.broken() or self.missing() or self.heartbeats.unhealthy or None

    def broken(self) -> str | None:
        """The reason why processes of a run that serves do not serve now, which liveness follows, too."""
        if self.state is not StackState.READY:
            return None
        if down := self._down():
            return f"{', '.join(sorted(down))} is down and being restarted"
        return self.heartbeats.reason()
