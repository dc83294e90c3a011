"""Measures a point of the search: starts a stack with its settings, sends loads, and stops it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from http import HTTPStatus
from urllib.parse import urlsplit

from tfs_proxy.data.capture.record import CapturedRequest
from tfs_proxy.observe.routes import INVOCATIONS
from tfs_proxy.serving.inner_stack import serving
from tfs_proxy.settings.settings import for_inner_stack
from tfs_proxy.tools.tune.axes import Point, Space
from tfs_proxy.tools.tune.bodies import GIVE_REQUESTS, whole_request
from tfs_proxy.tools.tune.clients import ClosedLoop
from tfs_proxy.tools.tune.measured import LoadLevel, Trial
from tfs_proxy.values.errors import SettingsError, StopServing, UpstreamError
from tfs_proxy.wire.error_body import error_text
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES
from tfs_proxy.wire.http_client import ConnectionPool, Timeouts

MOST_CONNECTIONS = 256
MIN_GAIN = 1.03
"""Twice the connections must raise the rate by this factor; else requests only wait longer."""

MeasureLevel = Callable[[int], LoadLevel]


def climb(measure: MeasureLevel, p99_ms: float, first: int) -> tuple[LoadLevel, ...]:
    """Measures powers of two: from ``first`` down until one meets the target, else up while the rate grows.

    A load with failing requests ends the climb: a higher one would not be answered better.
    """
    level = measure(first)
    levels = [level]
    while not level.holds(p99_ms) and level.connections > 1:
        level = measure(level.connections // 2)
        levels.append(level)
    if len(levels) > 1 or not level.holds(p99_ms):
        return tuple(levels)
    grows = True
    while grows and level.connections < MOST_CONNECTIONS:
        below, level = level, measure(level.connections * 2)
        levels.append(level)
        grows = level.holds(p99_ms) and level.rate > MIN_GAIN * below.rate
    return tuple(levels)


LOADS_IN_BUDGET = 300
"""A load of the first trials takes 1/300 of the budget, from `SHORTEST` to `LONGEST_SECONDS`."""

SHORTEST_SECONDS, LONGEST_SECONDS = 0.2, 2.0
RUN_UP_SECONDS = 0.3
WARM_UP_SECONDS = 0.7
WARM_UP_CONNECTIONS = 8
FIRST_CONNECTIONS = 8
"""Connections of the first climb; later ones begin where the best one so far was at its best."""

REQUEST_SECONDS = 60.0


class StackTrials:
    """Measures points of ``space``, each on a stack of its own that is stopped afterwards.

    Stacks inherit ``environ``; ``flags`` are those of `serve`.
    """

    def __init__(
        self,
        model: str,
        requests: Sequence[CapturedRequest],
        space: Space,
        p99_ms: float,
        environ: Mapping[str, str],
        flags: Sequence[str],
        budget_seconds: float,
    ) -> None:
        self._model, self._requests, self._space, self._p99_ms = model, requests, space, p99_ms
        self._environ, self._flags = for_inner_stack(environ), flags
        self._seconds = min(max(budget_seconds / LOADS_IN_BUDGET, SHORTEST_SECONDS), LONGEST_SECONDS)
        self._best: LoadLevel | None = None
        self._is_known_good = False

    def __call__(self, point: Point, times: int) -> Trial:
        """Measures ``point``, each load ``times`` as long as in a short trial.

        Raises SettingsError if the first stack refuses a request, and what `serving` raises if it does not
        start: other settings would not help. Failures of later ones are recorded in their trials.
        """
        try:
            return self._measured(point, times)
        except (StopServing, UpstreamError) as error:
            if not self._is_known_good:
                raise
            return Trial(point, (), fault=str(error).partition("\n")[0])

    def _measured(self, point: Point, times: int) -> Trial:
        environment = {**self._environ, **self._space.environment(point)}
        with serving(self._model, environment, self._flags) as url:
            host, port = urlsplit(url).hostname or "", urlsplit(url).port or 0
            if not self._is_known_good:
                self._try_all(host, port)
            loop = ClosedLoop(
                (host, port), [whole_request(each, f"{host}:{port}") for each in self._requests]
            )
            loop.load(WARM_UP_CONNECTIONS, 0, WARM_UP_SECONDS)
            seconds = self._seconds * times
            first = self._best.connections if self._best else FIRST_CONNECTIONS
            levels = climb(lambda count: loop.load(count, RUN_UP_SECONDS, seconds), self._p99_ms, first)
        trial = Trial(point, levels)
        best = trial.best(self._p99_ms)
        if best is not None and (self._best is None or best.rate > self._best.rate):
            self._best = best
        return trial

    def _try_all(self, host: str, port: int) -> None:
        """Sends each request once. Raises SettingsError if one is refused, and UpstreamError."""
        with closing(ConnectionPool(host, port, Timeouts(REQUEST_SECONDS))) as connections:
            for number, request in enumerate(self._requests, 1):
                sent = {"Content-Type": request.content_type, CUSTOM_ATTRIBUTES: request.custom_attributes}
                headers = {name: value for name, value in sent.items() if value is not None}
                answer = connections.request("POST", INVOCATIONS, request.body, headers)
                if answer.status >= HTTPStatus.BAD_REQUEST:
                    reason = error_text(answer.body) or "no reason is given"
                    raise SettingsError(
                        f"Request {number} is refused with {answer.status}: {reason}. If it was made of the "
                        f"signature, {GIVE_REQUESTS}"
                    )
        self._is_known_good = True
