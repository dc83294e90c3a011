"""Counts the requests in flight at each scrape: nginx says how many it has; without it, workers' notes do."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.journal_notes import under_way
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.wire.header_names import IN_FLIGHT

NGINX_COUNT = IN_FLIGHT.lower()


class RequestsInFlight:
    """``workers`` are the pids of those that run; ``journals`` has the notes of each."""

    def __init__(self, journals: Path, workers: Callable[[], Iterable[int]]) -> None:
        self._journals = journals
        self._workers = workers

    def measure(self, headers: Mapping[str, str]) -> MeasuredMetric:
        """All but the scrape itself, whose ``headers`` these are."""
        by_nginx = headers.get(NGINX_COUNT, "")
        count = int(by_nginx) if by_nginx.isdecimal() else self._noted()
        return MeasuredMetric(catalogue.REQUESTS_IN_FLIGHT, {(): max(count - 1, 0)})

    def _noted(self) -> int:
        return sum(under_way(self._journals / str(pid)) for pid in self._workers())
