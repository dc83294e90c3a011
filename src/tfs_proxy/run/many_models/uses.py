"""Uses of many models by gRPC, which goes from nginx to the model servers: they count their requests."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from tfs_proxy.run.scraping import ANSWER_SECONDS, ModelServerMetrics, refresh_all
from tfs_proxy.values.deployment import Instance

COUNT_SECONDS: Final = 5.0

_COUNTED: Final = re.compile(
    r'^:tensorflow:serving:request_count\{[^}]*model_name="([^"]+)"[^}]*\} (\d+)', re.MULTILINE
)


class ServedCounts:
    """Requests of each model as the model servers count them: nobody else sees which are called by gRPC."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def of(self, names: Iterable[str]) -> int:
        return sum(self._counts[name] for name in names)

    async def follow(self, instances: Iterable[Instance], metrics_path: str | None, seconds: float) -> None:
        """Asks the model servers every so many seconds; never returns."""
        metrics = ModelServerMetrics()
        metrics.begin(instances, metrics_path)
        while True:
            await refresh_all(metrics.answers, ANSWER_SECONDS)
            counts: Counter[str] = Counter()
            for text in metrics.texts().values():
                for name, count in _COUNTED.findall(text):
                    counts[name] += int(count)
            self._counts = counts
            await asyncio.sleep(seconds)
