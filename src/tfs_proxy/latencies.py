"""Latencies of any number of requests in little memory: for the summaries of transforms and pipelines."""

import math
from dataclasses import dataclass, field

_GROWTH = math.log(1.02)
"""Latencies are kept in classes of 2 %: a long run needs no more memory than a short one."""
_SHOWN = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))


@dataclass(slots=True)
class Latencies:
    """A count of requests for each class of latency."""

    classes: dict[int, int] = field(default_factory=dict)

    def add(self, seconds: float) -> None:
        """Count one request."""
        place = math.floor(math.log(max(seconds, 1e-6)) / _GROWTH)
        self.classes[place] = self.classes.get(place, 0) + 1

    def merge(self, other: "Latencies") -> None:
        """Count what ``other`` has counted."""
        for place, count in other.classes.items():
            self.classes[place] = self.classes.get(place, 0) + count

    @property
    def count(self) -> int:
        """How many requests there were."""
        return sum(self.classes.values())

    def percentile_seconds(self, share: float) -> float:
        """The latency that ``share`` (0 to 1) of the requests did not exceed, to 2 %; 0 without any."""
        wanted, seen = share * self.count, 0
        for place in sorted(self.classes):
            seen += self.classes[place]
            if seen >= wanted:
                return math.exp((place + 1) * _GROWTH)
        return 0.0

    def milliseconds(self) -> dict[str, float]:
        """p50, p90 and p99, for a summary."""
        return {name: round(1000 * self.percentile_seconds(share), 2) for name, share in _SHOWN}
