"""A counter and histograms under TF Serving's names, in Prometheus' text form."""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate

from tfs_proxy.wire.grpc_codes import GrpcCode

Labels = tuple[str, ...]

_MICROS = 1e6

LATENCY_MICROS = tuple(10 * 1.8**power for power in range(33))
"""Upper bounds of TF Serving's latency buckets, in microseconds."""


class Latencies:
    """Histogram ``name`` of latencies in microseconds, by the values of its ``labels``."""

    def __init__(self, name: str, *labels: str) -> None:
        self._name = f":tensorflow:serving:{name}"
        self._labels = labels
        self._counts: dict[Labels, list[int]] = {}
        self._totals: dict[Labels, float] = {}

    def add(self, key: Labels, micros: float) -> None:
        counts = self._counts.setdefault(key, [0] * (len(LATENCY_MICROS) + 1))
        counts[bisect_left(LATENCY_MICROS, micros)] += 1
        self._totals[key] = self._totals.get(key, 0.0) + micros

    def lines(self) -> Iterator[str]:
        yield f"# TYPE {self._name} histogram"
        bounds = [*(f"{bound:g}" for bound in LATENCY_MICROS), "+Inf"]
        for key, counts in sorted(self._counts.items()):
            labels = _labelled(self._labels, key)
            for bound, count in zip(bounds, accumulate(counts), strict=True):
                yield f'{self._name}_bucket{{{labels},le="{bound}"}} {count}'
            yield f"{self._name}_sum{{{labels}}} {self._totals[key]:.12g}"
            yield f"{self._name}_count{{{labels}}} {sum(counts)}"


class Metrics:
    """Metrics of the server; safe to use from every thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[Labels] = Counter()
        self._request_latency = Latencies("request_latency", "model_name", "API", "entrypoint")
        self._runtime_latency = Latencies("runtime_latency", "model_name", "API", "runtime")

    def request(self, model: str, api: str, entrypoint: str, code: GrpcCode, micros: float) -> None:
        """Count a request that has been answered; the latency is that of requests that went well."""
        with self._lock:
            self._requests[model, code.name] += 1
            if code is GrpcCode.OK:
                self._request_latency.add((model, api, entrypoint), micros)

    def run(self, model: str, api: str, seconds: float) -> None:
        with self._lock:
            self._runtime_latency.add((model, api, "TF1"), seconds * _MICROS)

    def text(self) -> bytes:
        """The metrics as Prometheus reads them."""
        name = ":tensorflow:serving:request_count"
        with self._lock:
            lines = [f"# TYPE {name} counter"]
            for key, count in sorted(self._requests.items()):
                lines.append(f"{name}{{{_labelled(('model_name', 'status'), key)}}} {count}")
            lines += [*self._request_latency.lines(), *self._runtime_latency.lines()]
        return ("\n".join(lines) + "\n").encode()


def _labelled(names: Labels, values: Labels) -> str:
    escaped = (value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for value in values)
    return ",".join(f'{name}="{value}"' for name, value in zip(names, escaped, strict=True))
