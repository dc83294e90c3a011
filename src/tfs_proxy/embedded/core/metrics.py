"""Counters and histograms under TF Serving's names, in Prometheus' text form."""

import threading
from bisect import bisect_left
from collections.abc import Sequence
from math import inf

from msgspec import Struct, field

from tfs_proxy.wire.grpc_codes import GrpcCode

Labels = tuple[str, ...]

_MICROS = 1e6

LATENCY_MICROS = tuple(10 * 1.8**power for power in range(33))
"""Upper bounds of TF Serving's latency buckets, in microseconds."""

EXAMPLES = tuple(float(2**power) for power in range(15))


class Counter(Struct):
    name: str
    labels: Labels
    values: dict[Labels, int] = field(default_factory=dict)

    def add(self, key: Labels, count: int = 1) -> None:
        self.values[key] = self.values.get(key, 0) + count

    def lines(self) -> list[str]:
        head = [f"# TYPE {self.name} counter"]
        return head + [
            f"{self.name}{{{_labelled(self.labels, key)}}} {value}"
            for key, value in sorted(self.values.items())
        ]


class BucketCounts(Struct):
    """Number of values in each bucket, and their sum."""

    counts: list[int]
    total: float = 0.0


class Histogram(Struct):
    """Bucket counts by label values."""

    name: str
    labels: Labels
    bounds: Sequence[float]
    values: dict[Labels, BucketCounts] = field(default_factory=dict)

    def add(self, key: Labels, value: float) -> None:
        buckets = self.values.get(key)
        if buckets is None:
            buckets = self.values[key] = BucketCounts([0] * (len(self.bounds) + 1))
        buckets.counts[bisect_left(self.bounds, value)] += 1
        buckets.total += value

    def lines(self) -> list[str]:
        lines = [f"# TYPE {self.name} histogram"]
        for key, buckets in sorted(self.values.items()):
            labelled = _labelled(self.labels, key)
            below = 0
            for bound, count in zip((*self.bounds, inf), buckets.counts, strict=True):
                below += count
                text = "+Inf" if bound == inf else f"{bound:g}"
                bucket = ",".join(filter(None, (labelled, f'le="{text}"')))
                lines.append(f"{self.name}_bucket{{{bucket}}} {below}")
            lines.append(f"{self.name}_sum{{{labelled}}} {buckets.total:.12g}")
            lines.append(f"{self.name}_count{{{labelled}}} {below}")
        return lines


class Metrics:
    """Metrics of the server; safe to use from every thread."""

    def __init__(self) -> None:
        prefix = ":tensorflow:serving:"
        latency_labels = ("model_name", "API")
        self._lock = threading.Lock()
        self._requests = Counter(f"{prefix}request_count", ("model_name", "status"))
        self._request_latency = Histogram(
            f"{prefix}request_latency", (*latency_labels, "entrypoint"), LATENCY_MICROS
        )
        self._runtime_latency = Histogram(
            f"{prefix}runtime_latency", (*latency_labels, "runtime"), LATENCY_MICROS
        )
        self._examples = Histogram(f"{prefix}request_example_counts", ("model",), EXAMPLES)
        self._example_total = Counter(f"{prefix}request_example_count_total", ("model",))
        self._loads = Counter(":tensorflow:cc:saved_model:load_attempt_count", ("model_path", "status"))
        self._load_latency = Counter(":tensorflow:cc:saved_model:load_latency", ("model_path",))
        self._warmup_latency = Histogram(
            f"{prefix}model_warmup_latency", ("model_path", "status"), LATENCY_MICROS
        )

    def request(self, model: str, api: str, entrypoint: str, code: GrpcCode, micros: float) -> None:
        """Count a request that has been answered; the latency is that of requests that went well."""
        with self._lock:
            self._requests.add((model, code.name))
            if code is GrpcCode.OK:
                self._request_latency.add((model, api, entrypoint), micros)

    def run(self, model: str, api: str, seconds: float) -> None:
        with self._lock:
            self._runtime_latency.add((model, api, "TF1"), seconds * _MICROS)

    def examples(self, model: str, count: int) -> None:
        with self._lock:
            self._examples.add((model,), count)
            self._example_total.add((model,), count)

    def load(self, path: str, code: GrpcCode, seconds: float) -> None:
        """Count a load of a model version; warming it up is not part of it."""
        with self._lock:
            self._loads.add((path, "success" if code is GrpcCode.OK else "fail"))
            self._load_latency.add((path,), int(seconds * _MICROS))

    def warmup(self, path: str, seconds: float) -> None:
        """Count a model version's warm-up that went well."""
        with self._lock:
            self._warmup_latency.add((path, "OK"), seconds * _MICROS)

    def text(self) -> bytes:
        """The metrics as Prometheus reads them."""
        with self._lock:
            lines = _lines(
                self._requests,
                self._request_latency,
                self._runtime_latency,
                self._examples,
                self._example_total,
                self._loads,
                self._load_latency,
                self._warmup_latency,
            )
        return ("\n".join(lines) + "\n").encode()


def _lines(*series: Counter | Histogram) -> list[str]:
    return [line for one in series if one.values for line in one.lines()]


def _labelled(names: Labels, values: Labels) -> str:
    escaped = (value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for value in values)
    return ",".join(f'{name}="{value}"' for name, value in zip(names, escaped, strict=True))
