"""One `tfs-proxy tune`: opens the model, starts a stack for each point of the search, and measures it."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from http import HTTPStatus
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.data.capture.record import CapturedRequest
from tfs_proxy.model.report.prepare import prepare
from tfs_proxy.serving.inner_stack import serving
from tfs_proxy.settings.parsers import for_inner_stack
from tfs_proxy.settings.settings import Settings
from tfs_proxy.tools.tune.axes import Point, Space, space_of
from tfs_proxy.tools.tune.bodies import GIVE_REQUESTS, made_request, whole_request, workload_of
from tfs_proxy.tools.tune.clients import ClosedLoop
from tfs_proxy.tools.tune.findings import Findings, findings_of
from tfs_proxy.tools.tune.measured import LoadLevel, Trial
from tfs_proxy.tools.tune.search import Search
from tfs_proxy.values.errors import SettingsError, StopServing, UpstreamError
from tfs_proxy.values.layout import Workspace
from tfs_proxy.wire.error_body import error_text
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES
from tfs_proxy.wire.http_client import ConnectionPool, Timeouts
from tfs_proxy.wire.routes import INVOCATIONS

log = logging.getLogger(__name__)


class TuneRequest(Struct, frozen=True):
    """A request for a search; without ``requests`` one is made from the model's signature.

    ``flags`` are those of `serve`; stacks inherit ``environ``.
    """

    model: str | None
    p99_ms: float
    budget_seconds: float
    requests: Sequence[CapturedRequest]
    flags: Sequence[str]
    environ: Mapping[str, str]


class Tuning:
    """One search from the model to the findings; its time starts with the object."""

    def __init__(self, request: TuneRequest, settings: Settings, workspace: Workspace) -> None:
        """Opens the model. Raises what `prepare` does, and SettingsError if no request can be made for it."""
        self._began = time.monotonic()
        self._request = request
        prepared = prepare(request.model, settings, workspace, request.environ)
        prepared.refuse_unusable_script()
        requests = request.requests or [made_request(prepared.served)]
        request = replace(request, model=str(prepared.served.layout.root), requests=requests)
        # Opening a TensorFlow Lite model adds a flag, which each stack adds again.
        sized = prepared.settings.with_values(extra_args=settings.extra_args)
        self.space = space_of(workload_of(prepared.served, requests, settings), sized)
        self.measure = StackTrials(request, self.space)
        self._search = Search(
            self.space, request.p99_ms, self.measure, self._clock, request.budget_seconds, self._log
        )

    def run(self) -> None:
        """Searches. Raises SettingsError for a request that is refused, StopServing if no stack starts."""
        for name, value in self.space.fixed.items():
            log.info("%s=%s is set, so it is not searched", name, value)
        self._search.run()

    def findings(self) -> Findings:
        return findings_of(self._search, self.space, self._request.p99_ms, self._clock())

    def _log(self, trial: Trial) -> None:
        best = trial.best(self._request.p99_ms)
        found = f"{best.rate:.0f} req/s, p99 {best.p99_ms:.1f} ms" if best else "the target is not kept"
        log.info("%3.0f s  %s: %s", self._clock(), self.space.label(trial.point), trial.failure or found)

    def _clock(self) -> float:
        return time.monotonic() - self._began


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
    """Measures points of ``space``, each on a stack of its own that is stopped afterwards."""

    def __init__(self, request: "TuneRequest", space: Space) -> None:
        self._model, self._requests, self._space = request.model or "", request.requests, space
        self._environ, self._flags = for_inner_stack(request.environ), request.flags
        self._p99_ms = request.p99_ms
        seconds = request.budget_seconds / LOADS_IN_BUDGET
        self._seconds = min(max(seconds, SHORTEST_SECONDS), LONGEST_SECONDS)
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
                answer = connections.request("POST", INVOCATIONS.path, request.body, headers)
                if answer.status >= HTTPStatus.BAD_REQUEST:
                    reason = error_text(answer.body) or "no reason is given"
                    raise SettingsError(
                        f"Request {number} is refused with {answer.status}: {reason}. If it was made of the "
                        f"signature, {GIVE_REQUESTS}"
                    )
        self._is_known_good = True
