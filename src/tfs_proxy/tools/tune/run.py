"""Runs all of `tfs-proxy tune`: opens the model, searches, and keeps the results if interrupted."""

import logging
import time
from collections.abc import Mapping, Sequence

from msgspec import Struct

from tfs_proxy.data.capture.record import CapturedRequest
from tfs_proxy.model.report.prepare import prepare
from tfs_proxy.settings.settings import Settings
from tfs_proxy.tools.tune.axes import Point, space_of
from tfs_proxy.tools.tune.bodies import made_request, workload_of
from tfs_proxy.tools.tune.findings import Findings, findings_of
from tfs_proxy.tools.tune.measured import Trial
from tfs_proxy.tools.tune.search import Search
from tfs_proxy.tools.tune.stacks import StackTrials
from tfs_proxy.values.layout import Workspace

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
        # Opening a TensorFlow Lite model adds a flag, which each stack adds again.
        sized = prepared.settings.with_values(extra_args=settings.extra_args)
        self.space = space_of(workload_of(prepared.served, requests, settings), sized)
        self._trials = StackTrials(
            str(prepared.served.layout.root),
            requests,
            self.space,
            request.p99_ms,
            request.environ,
            request.flags,
            request.budget_seconds,
        )
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

    def measure(self, point: Point, times: int) -> Trial:
        return self._trials(point, times)

    def _log(self, trial: Trial) -> None:
        best = trial.best(self._request.p99_ms)
        found = f"{best.rate:.0f} req/s, p99 {best.p99_ms:.1f} ms" if best else "the target is not kept"
        log.info("%3.0f s  %s: %s", self._clock(), self.space.label(trial.point), trial.failure or found)

    def _clock(self) -> float:
        return time.monotonic() - self._began
