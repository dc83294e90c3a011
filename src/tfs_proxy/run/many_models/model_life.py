"""One model from its load to its end, as a state machine in a task of its own; the registry has many."""

import asyncio
import logging
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Final

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.run.many_models.model_stack import ModelStack
from tfs_proxy.run.readiness import StackState
from tfs_proxy.serving.upstream.shortages import SHORTAGE_OF_PROCESSES, SHORTAGES, means_shortage
from tfs_proxy.values.errors import (
    LoadFailed,
    ModelLoadError,
    ModelNotReady,
    ModelServerEnded,
    NotEnoughResources,
    ScriptLoadError,
    TfsProxyError,
)
from tfs_proxy.wire.backoff import growing_pause
from tfs_proxy.wire.error_body import INTERNAL_ERROR
from tfs_proxy.wire.error_status import status_of_error

_SHELL_STATUS_OF_SIGKILL = 128 + signal.SIGKILL


def load_failure(error: Exception) -> TfsProxyError:
    """The error for the client of a load: ``error`` itself if its class has an HTTP status.

    NotEnoughResources for any sign of a shortage, in the error or its causes; LoadFailed if
    the model server died, or for an error from outside this package.
    """
    if isinstance(error, NotEnoughResources):
        return error
    text = str(error) or type(error).__name__
    if any(map(_is_shortage, _with_causes(error))):
        return NotEnoughResources(text)
    if isinstance(error, ModelLoadError) and error.ended_with is not None:
        return LoadFailed(text)
    if isinstance(error, TfsProxyError):
        return error
    return LoadFailed(text if isinstance(error, OSError) else INTERNAL_ERROR)


def _is_shortage(error: BaseException) -> bool:
    match error:
        case MemoryError():
            return True
        case OSError() if error.errno in {*SHORTAGES, SHORTAGE_OF_PROCESSES}:
            return True
        case ModelLoadError() if error.ended_with == -signal.SIGKILL:
            return True  # by the kernel, which is out of memory: nobody else kills one that loads
        case ModelServerEnded() if error.exit_status == _SHELL_STATUS_OF_SIGKILL:
            return True
        case ScriptLoadError():
            return means_shortage(f"{error}\n{error.report}")
    return means_shortage(str(error))


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """``error``, and the errors that it was raised from or while handling."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        hidden = following.__suppress_context__
        following = following.__cause__ or (None if hidden else following.__context__)


LOADED = "loaded"
FAILED = "failed"
OUTCOMES = {
    400: "not_servable",
    404: "not_found",
    409: "already_loaded",
    503: "not_ready",
    507: "no_resources",
}
"""Outcomes of failed loads by the status for the client."""


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

    def loaded(self, seconds: float) -> None:
        """Counts a successful load."""
        self.outcomes[LOADED] += 1
        self.seconds += seconds

    def failed(self, error: TfsProxyError) -> None:
        """Counts a load that failed or was refused."""
        self.outcomes[OUTCOMES.get(status_of_error(error), FAILED)] += 1


log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 30.0
HEALTHY_SECONDS: Final = 10.0
"""A stack that lived so long was healthy: its death counts as the first."""


ARROWS: Mapping[StackState, frozenset[StackState]] = {
    StackState.STARTING: frozenset({StackState.READY, StackState.STOPPING}),
    StackState.READY: frozenset({StackState.FAILED, StackState.STOPPING}),
    StackState.FAILED: frozenset({StackState.READY, StackState.STOPPING}),
    StackState.STOPPING: frozenset(),
}


Launch = Callable[[str, str], ModelStack]
"""Makes the stack of a model from its name and its url, which is a local path; `start` does the rest."""

Admit = Callable[[str, str], Awaitable[None]]
"""Raises NotEnoughResources if the model of this name and url does not fit; called just before its start."""


class _UnloadAsked(Exception):
    """The model is to be unloaded: the work under way was cancelled, and has ended."""


class ModelLife:
    """A model that is loaded, watched, restarted when it dies, and unloaded, all by `run`.

    ``launch`` makes a new stack for each start, ``admit`` raises NotEnoughResources just before the first;
    ``after`` is a life of the same name that has to end before. `run` never raises an error of the model:
    ``settled`` is set once the load has ended, with ``failure`` if it failed, and ``gone`` once nothing is
    left; ``ended`` is called just before. A load that fails is gone before it is settled.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        launch: Callable[[], ModelStack],
        admit: Callable[[], Awaitable[None]],
        counts: LoadCounts,
        ended: "Callable[[ModelLife], None]",
        after: "ModelLife | None",
    ) -> None:
        self.name, self.url = name, url
        self.state = StackState.STARTING
        self.reason = ""
        self.failure: TfsProxyError | None = None
        self.settled, self.gone = asyncio.Event(), asyncio.Event()
        self._launch, self._admit, self._counts, self._ended = launch, admit, counts, ended
        self._after = after
        self._unload_asked = asyncio.Event()
        self._stack: ModelStack | None = None
        self._began = _now()

    def change_state(self, new: StackState, reason: str = "") -> None:
        """The only place where the state changes; a change that is not in `ARROWS` is a bug."""
        if new not in ARROWS[self.state]:
            raise RuntimeError(f"model {self.name}: {self.state.of_model} -> {new.of_model} is not in ARROWS")
        log.debug("model %s: %s -> %s", self.name, self.state.of_model, new.of_model)
        self.state, self.reason = new, reason

    def ask_to_unload(self, because: ModelNotReady) -> None:
        """Cancels what is under way, and stops; waiting loads raise ``because``. Idempotent."""
        if self.state is StackState.STOPPING:
            return
        self.change_state(StackState.STOPPING)
        if not self.settled.is_set():
            self.failure = because
        if self._stack is not None:
            # At once: a caller who is told that the model is being unloaded relies on it.
            self._stack.shut()
        self._unload_asked.set()

    async def run(self) -> None:
        """Loads, watches and restarts until unloading is asked for; always stops the stack."""
        try:
            await self._load()
            await self._keep_running()
        except _UnloadAsked:
            pass
        finally:
            await self._stop_stack()
            await self._wait_for_the_one_before()
            self._end()

    async def _load(self) -> None:
        log.info("model %s: loading %s", self.name, self.url)
        try:
            await self._unless_unloaded(self._wait_for_the_one_before)
            await self._unless_unloaded(self._admit)
            await self._unless_unloaded(self._start)
        except _UnloadAsked:
            raise
        except Exception as error:
            self.failure = load_failure(error)
            self.change_state(StackState.STOPPING)
            _log_failed_load(self.name, error, self.failure)
            raise _UnloadAsked from error
        self.change_state(StackState.READY)
        seconds = _now() - self._began
        self._counts.loaded(seconds)
        self.settled.set()
        log.info("model %s: ready after %.2f s", self.name, seconds)

    async def _keep_running(self) -> None:
        deaths = 0
        while True:
            began = _now()
            error = await self._death()
            deaths = 1 if _now() - began >= HEALTHY_SECONDS else deaths + 1
            self.change_state(StackState.FAILED, _reason(error))
            deaths = await self._start_again(error, deaths)
            self.change_state(StackState.READY)
            log.info("model %s: ready again", self.name)

    async def _death(self) -> Exception:
        """Watches the stack until it can't go on; returns the reason."""
        if self._stack is None:
            return RuntimeError("there is no stack to watch")
        try:
            await self._unless_unloaded(self._stack.watch)
        except _UnloadAsked:
            raise
        except Exception as error:  # noqa: BLE001 - the caller logs it
            return error
        return RuntimeError("the watch over the model ended without a reason")

    async def _start_again(self, error: Exception, deaths: int) -> int:
        """Stops, pauses and starts until that works; returns the number of deaths in a row."""
        while True:
            pause_seconds = growing_pause(deaths, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
            self.reason = _reason(error)
            log.error(
                "model %s has failed: %s; starting it again in %.1f s",
                *(self.name, self.reason.rstrip("."), pause_seconds),
                exc_info=_unforeseen(error),
            )
            await self._stop_stack()
            await self._unless_unloaded(partial(asyncio.sleep, pause_seconds))
            self._counts.restarts[self.name] += 1
            try:
                await self._unless_unloaded(self._start)
            except _UnloadAsked:
                raise
            except Exception as start_error:  # noqa: BLE001 - logged in the next round
                error, deaths = start_error, deaths + 1
            else:
                return deaths

    async def _start(self) -> None:
        self._stack = self._launch()
        await self._stack.start()

    async def _stop_stack(self) -> None:
        """Stops the stack, if there is one; can't be cancelled."""
        stack, self._stack = self._stack, None
        if stack is None:
            return
        try:
            await stack.stop()
        except Exception:
            log.exception("model %s: its processes may not have stopped", self.name)

    async def _wait_for_the_one_before(self) -> None:
        if self._after is not None:
            await self._after.gone.wait()
            self._after = None

    def _end(self) -> None:
        """The last step, without an await: forgets the model, and wakes all who wait for it."""
        if not self.settled.is_set():
            self.failure = self.failure or LoadFailed(INTERNAL_ERROR)
            self._counts.failed(self.failure)
        self._ended(self)
        self.settled.set()
        self.gone.set()
        log.info("model %s: unloaded", self.name)

    async def _unless_unloaded(self, work: Callable[[], Awaitable[None]]) -> None:
        """Awaits ``work``. Raises _UnloadAsked after cancelling it, if unloading is asked for."""
        working = asyncio.ensure_future(work())
        asked = asyncio.ensure_future(self._unload_asked.wait())
        try:
            await asyncio.wait({working, asked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (working, asked):
                task.cancel()
            await asyncio.wait({working, asked})
        error = None if working.cancelled() else working.exception()
        if self._unload_asked.is_set():
            raise _UnloadAsked from error
        if working.cancelled():
            raise RuntimeError("cancelled from within")
        if error is not None:
            raise error


def _log_failed_load(name: str, error: Exception, failure: TfsProxyError) -> None:
    log.error("model %s can't be loaded: %s", name, failure, exc_info=_unforeseen(error))


def _unforeseen(error: Exception) -> Exception | None:
    """``error`` if its text alone does not explain it."""
    return None if isinstance(error, (TfsProxyError, OSError, MemoryError)) else error


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _now() -> float:
    return asyncio.get_running_loop().time()
