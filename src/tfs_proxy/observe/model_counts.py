"""Requests by the model that they ask for: how many, how they ended, how long they took, their sizes."""

import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from http import HTTPStatus

from msgspec import Struct

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import Distribution, MeasuredMetric

SECONDS_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
OTHER, LATEST = "other", "latest"
"""A model or version that is not of this run; the version of a request that names none."""

OK = "ok"
_CLIENT_GONE = 499
_OUTCOMES: Mapping[int, str] = {
    _CLIENT_GONE: "client_gone",
    HTTPStatus.SERVICE_UNAVAILABLE: "unavailable",
    HTTPStatus.GATEWAY_TIMEOUT: "timeout",
}


class KnownModels:
    """The models of this run, with the versions that are known: the only values that labels take.

    Without a ``default_model`` a request that names none is for a model that is not of this run.
    """

    def __init__(self, default_model: str | None, models: Mapping[str, Collection[int]]) -> None:
        self.default_model = default_model
        self._versions: dict[str, Collection[str]] = {} if default_model is None else {default_model: ()}
        for name, versions in models.items():
            self.add(name, versions)

    @property
    def versions(self) -> Mapping[str, Collection[str]]:
        """The versions of each model, as text."""
        return self._versions

    def add(self, model: str, versions: Collection[int]) -> None:
        """From here on this is a model of the run; it takes the place of one of that name."""
        self._versions[model] = {str(version) for version in versions}

    def remove(self, model: str) -> None:
        """From here on it is not; nothing happens if it was not before."""
        self._versions.pop(model, None)

    def labels(self, model: str, version: str) -> tuple[str, str]:
        """The values for what a request asks for; "" stands for a model or version that it does not name."""
        name = model or self.default_model or ""
        versions = self._versions.get(name)
        if versions is None:
            return OTHER, OTHER
        number = version.lstrip("0") or version
        return name, LATEST if not version else number if number in versions else OTHER


class Inferences(Struct):
    """How many inferences there have been, and how long they took together.

    ``last_at`` is when the last one was counted, in seconds since the epoch; 0 if there was none.
    """

    count: int = 0
    seconds: float = 0.0
    last_at: float = 0.0


class ModelCounts:
    """All requests for a model; they only grow, as long as the model is one of the run.

    ``inferences`` has those that ask for one by model, version and whether they went well; versions are
    labels as those of the metrics are.
    """

    def __init__(self, known: KnownModels, clock: Callable[[], float] = time.time) -> None:
        self.known = known
        self._clock = clock
        self.inferences: dict[tuple[str, str, bool], Inferences] = {}
        self._outcomes: Counter[tuple[str, ...]] = Counter()
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._seconds: dict[tuple[str, ...], float] = defaultdict(float)
        self._bytes_in: Counter[tuple[str, ...]] = Counter()
        self._bytes_out: Counter[tuple[str, ...]] = Counter()

    def add(
        self, asked: tuple[str, str], status: int, seconds: float, sizes: tuple[int, int], times: int = 1
    ) -> None:
        """Count a request for a model and version, ``times`` over; ``sizes`` are bytes in and out."""
        labels = self.known.labels(*asked)
        self._outcomes[*labels, outcome_of(status)] += times
        counts = self._counts.setdefault(labels, [0] * (len(SECONDS_BOUNDS) + 1))
        counts[bisect_left(SECONDS_BOUNDS, seconds)] += times
        self._seconds[labels] += seconds * times
        self._bytes_in[labels] += sizes[0] * times
        self._bytes_out[labels] += sizes[1] * times

    def add_inference(self, asked: tuple[str, str], status: int, seconds: float, times: int = 1) -> None:
        """Count a request as an inference, too, ``times`` over."""
        key = *self.known.labels(*asked), outcome_of(status) == OK
        inferences = self.inferences.setdefault(key, Inferences())
        inferences.count += times
        inferences.seconds += seconds * times
        inferences.last_at = self._clock()

    def follow(self, known: KnownModels) -> None:
        """From here on these are the models of the run; those that have gone are forgotten."""
        gone = self.known.versions.keys() - known.versions.keys()
        for model in gone:
            self.remove_model(model)
        self.known = known

    def requests_of(self, model: str) -> int:
        """How many requests there have been for a model."""
        return sum(times for labels, times in self._outcomes.items() if labels[0] == model)

    def remove_model(self, model: str) -> None:
        """Forget a model that has gone: who loads ever new ones must not make ever more series."""
        self.known.remove(model)
        for counts in (self._outcomes, self._counts, self._seconds, self._bytes_in, self._bytes_out):
            for labels in [labels for labels in counts if labels[0] == model]:
                del counts[labels]
        self.inferences = {key: of for key, of in self.inferences.items() if key[0] != model}

    def measure(self) -> Iterator[MeasuredMetric]:
        """All counts so far."""
        yield MeasuredMetric(catalogue.MODEL_REQUESTS, dict(self._outcomes))
        distributions = {
            labels: Distribution(SECONDS_BOUNDS, tuple(counts), self._seconds[labels])
            for labels, counts in self._counts.items()
        }
        yield MeasuredMetric(catalogue.MODEL_REQUEST_DURATION, distributions=distributions)
        yield MeasuredMetric(catalogue.REQUEST_BYTES, dict(self._bytes_in))
        yield MeasuredMetric(catalogue.RESPONSE_BYTES, dict(self._bytes_out))


def outcome_of(status: int) -> str:
    """How a request ended, in a word."""
    if status in _OUTCOMES:
        return _OUTCOMES[status]
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status < HTTPStatus.CONTINUE:
        return "server_error"
    return "client_error" if status >= HTTPStatus.BAD_REQUEST else OK
