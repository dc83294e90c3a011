"""Reads `/metrics` of a stack as Prometheus's own client library reads it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open_metrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from support.running import Answer, Running
from support.waiting import wait_until

SECONDS = 60.0
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


@dataclass(frozen=True)
class Scrape:
    """The families of one scrape."""

    families: tuple[Metric, ...]

    def values(self, name: str, **labels: str) -> Iterator[tuple[Mapping[str, str], float]]:
        """The samples of this name that have these labels among theirs."""
        for family in self.families:
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    yield sample.labels, sample.value

    def total(self, name: str, **labels: str) -> float:
        """The sum of those samples; 0 if there are none."""
        return sum(value for _, value in self.values(name, **labels))


def scrape(running: Running) -> Scrape:
    """Prometheus's text."""
    answer = _answer(running, {})
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return Scrape(tuple(read_text(answer.body.decode())))


def counted(running: Running) -> Counter[tuple[str, str, str]]:
    """Requests by route, method and status."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for labels, value in scrape(running).values("http_server_request_duration_seconds_count"):
        route, method = labels["http_route"], labels["http_request_method"]
        counts[route, method, labels["http_response_status_code"]] += int(value)
    return counts


def scrape_open_metrics(running: Running) -> Scrape:
    """The same as OpenMetrics, whose parser is strict."""
    answer = _answer(running, {"Accept": OPEN_METRICS})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    families = read_open_metrics(answer.body.decode())  # type: ignore[no-untyped-call]
    return Scrape(tuple(families))


def _answer(running: Running, headers: Mapping[str, str]) -> Answer:
    """The first that is not nginx's 504, with which it gives up on a supervisor that gets no processor time."""

    def in_time() -> Answer | None:
        answer = running.ask("GET", "/metrics", headers=headers)
        return answer if answer.status != HTTPStatus.GATEWAY_TIMEOUT else None

    answer = wait_until(in_time, SECONDS, "/metrics is answered in time")
    assert answer is not None
    assert answer.status == HTTPStatus.OK, answer
    return answer
