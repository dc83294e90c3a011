"""One model from its load to its end: a task that starts its stacks, one after the other."""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import Final

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.run.many_models.model_stacks import ModelStack
from tfs_proxy.run.process import Backoff
from tfs_proxy.run.readiness import StackState
from tfs_proxy.serving.upstream.shortages import load_failure
from tfs_proxy.values.errors import LoadFailed, TfsProxyError
from tfs_proxy.wire.error_body import INTERNAL_ERROR
from tfs_proxy.wire.error_status import status_of_error

log = logging.getLogger(__name__)

BACKOFF: Final = Backoff(first_seconds=0.5, longest_seconds=30.0)
"""Pauses between the starts of a stack, which is started as often as it takes."""

Launch = Callable[[str, str], ModelStack]
"""Makes the stack of a model from its name and its url, which is a local path; `start` does the rest."""

Admit = Callable[[str, str], Awaitable[None]]
"""Raises NotEnoughResources if the model of this name and url does not fit; called just before its start."""

OUTCOMES = {
    400: "not_servable",
    404: "not_found",
    409: "already_loaded",
    503: "not_ready",
    507: "no_resources",
}
"""Outcomes of failed loads by the status for the client; any other is a failure."""


class LoadCounts:
    """Counts of all loads so far.

    ``outcomes`` has a number for each outcome; ``seconds`` is the total time of successful loads,
    from the request; ``restarts`` has the restarts of stacks, by the name of a model that exists.
    """

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.seconds = 0.0
        self.restarts: Counter[str] = Counter()

    def measure(self) -> Iterator[MeasuredMetric]:
        yield MeasuredMetric(catalogue.MODEL_LOADS, {(outcome,): n for outcome, n in self.outcomes.items()})
        yield MeasuredMetric(catalogue.MODEL_LOADS_SECONDS, {(): self.seconds})
        yield MeasuredMetric(catalogue.MODEL_RESTARTS, {(name,): n for name, n in self.restarts.items()})

    def failed(self, error: TfsProxyError) -> None:
        """Counts a load that failed or was refused."""
        self.outcomes[OUTCOMES.get(status_of_error(error), "failed")] += 1


class Model:
    """A model that is loaded, watched, restarted when it dies, and unloaded, all by `live`.

    ``launch`` makes a new stack for each start, ``admit`` raises NotEnoughResources just before the first;
    ``after`` is a model of the same name that has to end before. `live` never raises an error of the model:
    ``settled`` is set once the load has ended, with ``failure`` if it failed, and ``gone`` once nothing is
    left; ``ended`` is called just before. A load that fails is gone before it is settled.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        launch: Launch,
        admit: Admit,
        counts: LoadCounts,
        ended: "Callable[[Model], None]",
        after: "Model | None",
    ) -> None:
        self.name = name
        self.url = url
        self.reason = ""
        self.failure: TfsProxyError | None = None
        self.settled = asyncio.Event()
        self.gone = asyncio.Event()
        self._launch = launch
        self._admit = admit
        self._counts = counts
        self._ended = ended
        self._after = after
        self._is_leaving = False
        self._stop_by = math.inf
        self._stack: ModelStack | None = None
        self._life: asyncio.Future[None] | None = None
        self._began = _now()
        self._ready_at = math.inf

    @property
    def state(self) -> StackState:
        """That of its stack; a model that was loaded has failed while it has none that is ready."""
        if self._is_leaving:
            return StackState.STOPPING
        if self._stack is not None and self._stack.state is StackState.READY:
            return StackState.READY
        return StackState.FAILED if self.settled.is_set() else StackState.STARTING

    @property
    def is_loaded(self) -> bool:
        """True if it was loaded and nobody has unloaded it since; a failed one is being restarted."""
        return self.state in {StackState.READY, StackState.FAILED}

    @property
    def served(self) -> Mapping[str, Collection[int]]:
        """The models and versions of its archive on the model servers, while it serves."""
        return {} if self._stack is None or self.state is not StackState.READY else self._stack.served

    @property
    def unhealthy(self) -> str:
        """The reason why its script says that it can't serve; "" if it says nothing of that kind."""
        return "" if self._stack is None else self._stack.unhealthy

    def unload(self, because: TfsProxyError, stop_by: float = math.inf) -> None:
        """Cancels what is under way, and stops; waiting loads raise ``because``. Idempotent.

        Requests have until ``stop_by``, of `time.monotonic`, if the settings' limit is not sooner.
        """
        if self._is_leaving:
            return
        self._is_leaving = True
        self._stop_by = stop_by
        if not self.settled.is_set():
            self.failure = because
        if self._stack is not None:
            # At once: a caller who is told that the model is being unloaded relies on it.
            self._stack.shut()
        if self._life is not None:
            self._life.cancel()

    async def loaded(self) -> None:
        """Returns once the load has ended. Raises its failure."""
        await self.settled.wait()
        if self.failure is not None:
            raise self.failure

    async def live(self) -> None:
        """Loads, watches and restarts until it is unloaded; always stops the stack."""
        log.info("model %s: loading %s", self.name, self.url)
        try:
            await self._keep_alive()
        finally:
            await self._stop_stack()
            await self._former_is_gone()
            # Without an await from here on: forgets the model, and wakes all who wait for it.
            if not self.settled.is_set():
                self.failure = self.failure or LoadFailed(INTERNAL_ERROR)
                self._counts.failed(self.failure)
            self._ended(self)
            self.settled.set()
            self.gone.set()
            log.info("model %s: unloaded", self.name)

    async def _keep_alive(self) -> None:
        """Starts a stack, and after each failure pauses and starts another one, as often as it takes."""
        deaths = 0
        pause_seconds = 0.0
        while not self._is_leaving:
            self._life = asyncio.ensure_future(self._serve(pause_seconds))
            await asyncio.wait({self._life})
            if self._is_leaving:
                return
            error = None if self._life.cancelled() else self._life.exception()
            if not self.settled.is_set():
                failure = load_failure(error or RuntimeError("cancelled from within"))
                log.error("model %s can't be loaded: %s", self.name, failure, exc_info=_unforeseen(error))
                self.unload(failure)
                return
            deaths = BACKOFF.deaths_in_a_row(deaths, _now() - self._ready_at)
            pause_seconds = BACKOFF.pause_seconds(deaths)
            self.reason = str(error) or type(error).__name__
            log.error(
                "model %s has failed: %s; starting it again in %.1f s",
                self.name,
                self.reason.rstrip("."),
                pause_seconds,
                exc_info=_unforeseen(error),
            )
            await self._stop_stack()

    async def _serve(self, pause_seconds: float) -> None:
        """One life: starts a stack after a pause, and watches it. Raises its error."""
        is_load = not self.settled.is_set()
        self._ready_at = math.inf
        await asyncio.sleep(pause_seconds)
        if is_load:
            await self._former_is_gone()
            await self._admit(self.name, self.url)
        else:
            self._counts.restarts[self.name] += 1
        self._stack = self._launch(self.name, self.url)
        await self._stack.start()
        self._ready_at = _now()
        self.reason = ""
        if is_load:
            seconds = self._ready_at - self._began
            self._counts.outcomes["loaded"] += 1
            self._counts.seconds += seconds
            self.settled.set()
            log.info("model %s: ready after %.2f s", self.name, seconds)
        else:
            log.info("model %s: ready again", self.name)
        await self._stack.watch_forever()

    async def _stop_stack(self) -> None:
        """Stops the stack, if there is one; no unload cancels that."""
        stack = self._stack
        self._stack = None
        if stack is None:
            return
        try:
            await stack.stop(self._stop_by)
        except Exception:
            log.exception("model %s: its processes may not have stopped", self.name)

    async def _former_is_gone(self) -> None:
        if self._after is not None:
            await self._after.gone.wait()
            self._after = None


def _unforeseen(error: BaseException | None) -> BaseException | None:
    """``error`` if its text alone does not explain it."""
    return None if isinstance(error, (TfsProxyError, OSError, MemoryError)) else error


def _now() -> float:
    return asyncio.get_running_loop().time()
