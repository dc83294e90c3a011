"""What the registry counts for metrics: loads by outcome, how long they took, restarts by model."""

from collections import Counter
from collections.abc import Iterator

from tfs_proxy.errors import TfsProxyError
from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.wire.error_status import status_of_error

LOADED = "loaded"
FAILED = "failed"
OUTCOMES = {
    400: "not_servable",
    404: "not_found",
    409: "already_loaded",
    503: "not_ready",
    507: "no_resources",
}
"""A failed load's outcome by the status that its client gets."""


class LoadCounts:
    """Counts of all loads so far.

    ``outcomes`` has a number for each outcome; ``seconds`` is what the loads that went well took together,
    from the request; ``restarts`` has the stacks that were started again, by the name of a model there is.
    """

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.seconds = 0.0
        self.restarts: Counter[str] = Counter()

    def measure(self) -> Iterator[MeasuredMetric]:
        """All counts so far."""
        yield MeasuredMetric(catalogue.MODEL_LOADS, {(outcome,): n for outcome, n in self.outcomes.items()})
        yield MeasuredMetric(catalogue.MODEL_LOADS_SECONDS, {(): self.seconds})
        yield MeasuredMetric(catalogue.MODEL_RESTARTS, {(name,): n for name, n in self.restarts.items()})

    def loaded(self, seconds: float) -> None:
        """Count a load that went well."""
        self.outcomes[LOADED] += 1
        self.seconds += seconds

    def failed(self, error: TfsProxyError) -> None:
        """Count a load that failed or was refused."""
        self.outcomes[OUTCOMES.get(status_of_error(error), FAILED)] += 1
