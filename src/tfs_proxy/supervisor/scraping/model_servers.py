"""The model servers' own metrics, which `/metrics` shows with the number of each."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial

from tfs_proxy.deployment import Instance
from tfs_proxy.errors import UpstreamError
from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import MeasuredMetric, Points
from tfs_proxy.supervisor.scraping.latest_answer import LatestAnswer
from tfs_proxy.wire.connections import get_async
from tfs_proxy.wire.http_messages import HttpResponse

ANSWER_SECONDS = 2.0
"""How long a model server may take; the scrape that asked it does not wait for so long."""

OK = 200

Get = Callable[[str, int, str, float], Awaitable[HttpResponse]]


class ModelServerMetrics:
    """Text by instance, as each last answered; nothing before `begin`."""

    def __init__(self, get: Get = get_async) -> None:
        self._get = get
        self._answers: dict[str, LatestAnswer[str]] = {}

    def begin(self, instances: Iterable[Instance], path: str | None) -> None:
        """Ask ``instances`` at ``path`` from now on; None if they show no metrics."""
        if path is not None:
            self._answers = {
                str(instance.index): LatestAnswer(partial(self._ask, instance, path))
                for instance in instances
            }

    @property
    def answers(self) -> Iterable[LatestAnswer[str]]:
        """What a scrape refreshes."""
        return self._answers.values()

    def texts(self) -> dict[str, str]:
        """Prometheus's text by the instance's number."""
        return {server: answer.value for server, answer in self._answers.items() if answer.value is not None}

    def measure(self) -> Iterator[MeasuredMetric]:
        """Which of them answer, and how old their metrics are."""
        ages: Points = {
            (server,): answer.age_seconds
            for server, answer in self._answers.items()
            if answer.value is not None
        }
        yield MeasuredMetric(catalogue.MODEL_SERVER_METRICS_AGE, ages)

    async def _ask(self, instance: Instance, path: str) -> str | None:
        try:
            answer = await self._get(instance.host, instance.rest_port, path, ANSWER_SECONDS)
        except UpstreamError:
            return None
        return answer.body.decode(errors="replace") if answer.status == OK else None
