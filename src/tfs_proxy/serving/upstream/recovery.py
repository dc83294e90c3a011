"""Recovery from restarts of model servers: a request waits meanwhile, instead of failing.

A prediction changes nothing, so sending it again is safe; but a request may be what ends a model
server, and can't be distinguished from others in flight at that time: it is sent twice at most.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from http import HTTPStatus
from typing import ParamSpec, TypeVar, Unpack

from tfs_proxy.observe.request_record import (
    MODEL_SERVER,
    note_failed,
    require_client,
    seconds_left,
    stage,
)
from tfs_proxy.serving.upstream.interface import CallOptions, ModelAnswer, Records, Upstream
from tfs_proxy.values.deployment import TimeLimits
from tfs_proxy.values.errors import NotReached, UpstreamRefused, UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.values.signature import Signature, Target

ATTEMPTS = 2
"""Attempts at which a request may break the connection to a model server."""

PATIENCE_SECONDS = 30.0
PAUSE_SECONDS = 0.1
"""Pause that is longer than the supervisor takes to notice that a process has ended."""

UNREACHED = 10
"""Attempts without a reachable model server, or without the model, while all has settled.

Connections take a moment to be tried again.
"""


Outcome = TypeVar("Outcome")
Parameters = ParamSpec("Parameters")


_broken_before: ContextVar[int] = ContextVar("broken_before", default=0)


@contextmanager
def sent_before() -> Iterator[None]:
    """Count requests inside as sent once already: nginx did, and the connection broke."""
    token = _broken_before.set(1)
    try:
        yield
    finally:
        _broken_before.reset(token)


class Recovering:
    """`tfs_proxy.serving.upstream.interface.Upstream` that wraps another.

    ``settled`` says if no model server is being restarted, as far as the supervisor knows. Waits
    ``PATIENCE_SECONDS`` for it at most, less if ``times`` say so; then the answer or the error of the last
    attempt stands.
    """

    def __init__(
        self,
        upstream: Upstream,
        settled: Callable[[], bool],
        times: TimeLimits,
    ) -> None:
        self._upstream = upstream
        self.choose = upstream.choose
        self.close = upstream.close
        self._settled = settled
        self._call_seconds = times.request_seconds
        self._patience_seconds = min(PATIENCE_SECONDS, times.wait_seconds)

    def signature(self, target: Target) -> Signature:
        return self._known(self._upstream.signature, target)

    def signatures_of(self, target: Target) -> Mapping[str, Signature]:
        return self._known(self._upstream.signatures_of, target)

    def predict(self, target: Target, records: Records, **options: Unpack[CallOptions]) -> ModelAnswer:
        """Send records; a timeout of the caller's own, or of the request's, bounds the waiting, too."""
        seconds = options.get("timeout_seconds")
        left = seconds_left()
        if left < (self._call_seconds if seconds is None else seconds):
            options["timeout_seconds"] = seconds = left
        ask = lambda: self._upstream.predict(target, records, **options)  # noqa: E731
        return self._answer(ask, math.inf if seconds is None else seconds)

    def patient(self, ask: Callable[Parameters, ModelAnswer]) -> Callable[Parameters, ModelAnswer]:
        """Wrap ``ask`` so that it waits in the same way if the model server is away."""
        return lambda *args, **kwargs: self._answer(lambda: ask(*args, **kwargs))

    def _answer(self, ask: Callable[[], ModelAnswer], most_seconds: float = math.inf) -> ModelAnswer:
        """Ask patiently; an error counts as the request's failed stage."""
        with stage(MODEL_SERVER):
            answer = self._patiently(ask, most_seconds)
        if not answer.ok:
            note_failed(MODEL_SERVER)
        return answer

    def _known(self, ask: Callable[[Target], Outcome], target: Target) -> Outcome:
        """Call ``ask``; raises UpstreamRefused once that is final."""
        try:
            return self._patiently(lambda: ask(target))
        except (UpstreamRefused, UpstreamUnavailable, UpstreamTimeout):
            note_failed(MODEL_SERVER)
            raise

    def _patiently(self, ask: Callable[[], Outcome], most_seconds: float = math.inf) -> Outcome:
        """Ask again, once all has settled, if the model server was away."""
        deadline = time.monotonic() + min(most_seconds, self._patience_seconds)
        broken = _broken_before.get()
        unreached = 0
        if broken:
            time.sleep(PAUSE_SECONDS)
            self._wait(deadline)
        while unreached < UNREACHED:
            require_client()
            try:
                answer = ask()
                if getattr(answer, "status", None) != HTTPStatus.NOT_FOUND or self._settled():
                    return answer
                unreached += 1
            except UpstreamRefused as refused:
                if refused.status != HTTPStatus.NOT_FOUND or self._settled():
                    raise
                unreached += 1
            except NotReached:
                unreached += 1
                time.sleep(PAUSE_SECONDS)
            except UpstreamUnavailable:
                broken += 1
                if broken >= ATTEMPTS:
                    raise
                time.sleep(PAUSE_SECONDS)
            if not self._wait(deadline):
                break
        return ask()

    def _wait(self, deadline: float) -> bool:
        while not self._settled():
            if time.monotonic() >= deadline:
                return False
            time.sleep(PAUSE_SECONDS)
        return True
