"""Load balancer of model servers: a request goes to the least busy instance of those that are up.

Every instance has a circuit of its own. It opens if connections are refused, or break several times
in a row; an answer of the model server, even a 503, never opens it. While it is open
requests pass the instance by, or fail at once if there is no other, and after a pause one request
at a time goes out to see if it is back.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import TypeVar

from msgspec import Struct

from tfs_proxy.values.deployment import Instance
from tfs_proxy.values.errors import NotReached, UpstreamUnavailable
from tfs_proxy.values.processes import growing_pause

BREAKS = 3
"""Connections that break in a row before a circuit opens: one alone may be the request's own doing."""

SHORTEST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 0.2

Result = TypeVar("Result")


class _Circuit(Struct):
    """One instance as this process knows it."""

    busy: int = 0
    """Number of requests that it is answering."""

    breaks: int = 0
    """Number of requests in a row that ended without an answer."""

    openings: int = 0
    """Number of times in a row that the circuit was opened; 0 if it is closed."""

    ask_again_at: float = 0.0
    """Time of the monotonic clock, in seconds, from which a request may try it."""

    asking: bool = False
    """True while such a request is under way."""

    @property
    def is_open(self) -> bool:
        return self.openings > 0


class LoadBalancer:
    """Balancer of the instances that serve the same models, shared by all threads of a worker."""

    def __init__(self, instances: Sequence[Instance], clock: Callable[[], float] = time.monotonic) -> None:
        self._states = {instance: _Circuit() for instance in instances}
        self._clock = clock
        self._turns = itertools.count()
        self._lock = Lock()

    def choose(self) -> Instance:
        """Choose the least busy instance that is up, in turn if several are; any if none is.

        Raises UpstreamUnavailable if there are no instances at all.
        """
        first = next(self._by_load(), None)
        if first is None:
            raise UpstreamUnavailable("No model server is running.")
        return first

    def send(self, instance: Instance | None, call: Callable[[Instance], Result]) -> Result:
        """Call ``call`` with ``instance``, or the least busy one; with another one if it is not reached.

        Raises UpstreamUnavailable if none can be reached, and all exceptions of ``call`` but NotReached.
        """
        if instance is not None and self._admit(instance):
            try:
                return self._used(instance, call)
            except NotReached:
                pass
        for other in list(self._by_load()):
            if other == instance or not self._admit(other):
                continue
            try:
                return self._used(other, call)
            except NotReached:
                continue
        raise NotReached("No model server can be reached; it may be starting again. Try again later.")

    def _by_load(self) -> Iterator[Instance]:
        """Yield instances, those that are up and least busy first; equal ones take turns."""
        states = list(self._states.items())
        if len(states) > 1:
            turn = next(self._turns) % len(states)
            states = states[turn:] + states[:turn]
            states.sort(key=lambda item: (item[1].is_open, item[1].busy))
        return (instance for instance, _ in states)

    def _admit(self, instance: Instance) -> bool:
        """True if a request may go to it now; if its circuit is open, one at a time after a pause."""
        state = self._states[instance]
        with self._lock:
            if state.is_open:
                if state.asking or self._clock() < state.ask_again_at:
                    return False
                state.asking = True
            state.busy += 1
        return True

    def _used(self, instance: Instance, call: Callable[[Instance], Result]) -> Result:
        state = self._states[instance]
        opens = False
        try:
            result = call(instance)
        except NotReached:
            opens = True
            raise
        except UpstreamUnavailable:
            state.breaks += 1
            opens = state.is_open or state.breaks >= BREAKS
            raise
        else:
            state.breaks = state.openings = 0
            return result
        finally:
            with self._lock:
                state.busy -= 1
                # NOTE: requests that were in flight together fail together; that makes no longer pause.
                renews = state.asking or not state.is_open
                state.asking = False
                if opens and renews:
                    state.openings += 1
                    pause = growing_pause(state.openings, SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
                    state.ask_again_at = self._clock() + pause
