"""All that a scrape has to ask others for, together: it waits for a moment, then shows what is known."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.supervisor.scraping.gpus import Gpus, find_gpus
from tfs_proxy.supervisor.scraping.latest_answer import LatestAnswer, refresh_all
from tfs_proxy.supervisor.scraping.model_servers import ModelServerMetrics

if TYPE_CHECKING:
    from tfs_proxy.observe.merging import MergedFamily


class OutsideMetrics:
    """The model servers' own metrics, and the GPUs'."""

    def __init__(self, gpus: Gpus | None = None) -> None:
        self.model_servers = ModelServerMetrics()
        self._gpus = gpus or find_gpus()

    def warm_up(self) -> None:
        """Ask all of them, so that the first scrape has something to show."""
        for answer in self._answers():
            answer.refresh()

    async def refresh(self) -> None:
        """Ask all of them, and wait for a few milliseconds at most."""
        await refresh_all(self._answers())

    def _answers(self) -> tuple[LatestAnswer[Any], ...]:
        return (*self.model_servers.answers, *self._gpus.answers)

    def measure(self) -> Iterator[MeasuredMetric]:
        """What is measured here of them, as they last answered."""
        yield from self.model_servers.measure()
        yield from self._gpus.measure()

    def families(self) -> Iterable["MergedFamily"]:
        """What the model servers measured themselves, with the label ``server``."""
        # PERF: its library costs 70 ms of a start, which nobody may wait for.
        from tfs_proxy.observe.merging import merged

        return merged(self.model_servers.texts(), "server")
