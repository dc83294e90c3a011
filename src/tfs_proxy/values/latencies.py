"""A histogram of latencies, for the summaries of transforms and pipelines."""

import math

from msgspec import Struct, field

_BUCKET_WIDTH = math.log(1.02)
"""Buckets of 2 %: a long run needs no more memory than a short one."""
_SHOWN = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))


class Latencies(Struct):
    """Number of requests by bucket; bucket n begins at 1.02 ** n seconds."""

    buckets: dict[int, int] = field(default_factory=dict)

    def add(self, seconds: float) -> None:
        bucket = math.floor(math.log(max(seconds, 1e-6)) / _BUCKET_WIDTH)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1

    def merge(self, other: "Latencies") -> None:
        for bucket, count in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count

    @property
    def count(self) -> int:
        return sum(self.buckets.values())

    def percentile_seconds(self, share: float) -> float:
        """The latency that ``share`` (0 to 1) of the requests did not exceed, to 2 %; 0 without any."""
        wanted = share * self.count
        seen = 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= wanted:
                return math.exp((bucket + 1) * _BUCKET_WIDTH)
        return 0.0

    def milliseconds(self) -> dict[str, float]:
        """p50, p90 and p99, for a summary."""
        return {name: round(1000 * self.percentile_seconds(share), 2) for name, share in _SHOWN}
