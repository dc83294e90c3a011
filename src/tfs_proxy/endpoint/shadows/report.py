"""What became of the copies that one shadow variant got: counts, differences and latencies."""

from collections import Counter
from typing import Any

from msgspec import Struct, field

from tfs_proxy.endpoint.shadows.differences import RELATIVE, body_difference
from tfs_proxy.latencies import Latencies

MOST_EXAMPLES = 10


class VariantAnswer(Struct, frozen=True):
    """What a variant has answered: ``status`` 0 if it gave no answer; ``seconds`` it took."""

    status: int
    content_type: str
    body: bytes
    seconds: float


class ShadowReport(Struct):
    """Of ``shadow`` beside ``production``; differences are the first ones, each with its request's id."""

    production: str
    shadow: str
    tolerance: float = RELATIVE
    copied: int = 0
    dropped: int = 0
    equal: int = 0
    statuses: Counter[tuple[int, int]] = field(default_factory=Counter)
    bodies: int = 0
    examples: list[dict[str, str]] = field(default_factory=list)
    production_latencies: Latencies = field(default_factory=Latencies)
    shadow_latencies: Latencies = field(default_factory=Latencies)

    def add(self, inference_id: str, ours: VariantAnswer, theirs: VariantAnswer) -> None:
        """Compare the two answers to one request."""
        self.copied += 1
        self.production_latencies.add(ours.seconds)
        self.shadow_latencies.add(theirs.seconds)
        if ours.status != theirs.status:
            self.statuses[ours.status, theirs.status] += 1
            self._show(inference_id, f"the status is {ours.status} and {theirs.status}")
            return
        difference = body_difference(ours.content_type, ours.body, theirs.body, self.tolerance)
        if difference is None:
            self.equal += 1
        else:
            self.bodies += 1
            self._show(inference_id, difference)

    def document(self) -> dict[str, Any]:
        """It as JSON."""
        statuses = [
            {"production": ours, "shadow": theirs, "requests": count}
            for (ours, theirs), count in sorted(self.statuses.items())
        ]
        latencies = {
            "production": self.production_latencies.milliseconds(),
            "shadow": self.shadow_latencies.milliseconds(),
        }
        return {
            "production": self.production,
            "shadow": self.shadow,
            "copied": self.copied,
            "dropped": self.dropped,
            "equal": self.equal,
            "status_differences": statuses,
            "body_differences": self.bodies,
            "tolerance": self.tolerance,
            "examples": self.examples,
            "latency_ms": latencies,
        }

    def line(self) -> str:
        """It as a sentence for the log."""
        statuses = sum(self.statuses.values())
        ours, theirs = self.production_latencies.milliseconds(), self.shadow_latencies.milliseconds()
        return (
            f"shadow variant {self.shadow}: {self.copied} copies of requests to {self.production}, "
            f"{self.equal} answered alike, {statuses} with another status, {self.bodies} with another body, "
            f"{self.dropped} dropped; p50 {theirs['p50']:g} ms beside {ours['p50']:g} ms"
        )

    def _show(self, inference_id: str, difference: str) -> None:
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append({"inferenceId": inference_id, "difference": difference})
