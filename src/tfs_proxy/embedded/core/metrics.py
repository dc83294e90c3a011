"""A counter and histograms under TF Serving's names, in Prometheus' text form."""

import threading
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate

from tfs_proxy.observe.metric import Histogram, Labels, escaped
from tfs_proxy.wire.grpc_codes import GrpcCode

_MICROS = 1e6
_PREFIX = ":tensorflow:serving:"

LATENCY_MICROS = tuple(10 * 1.8**power for power in range(33))
"""Upper bounds of TF Serving's latency buckets, in microseconds."""


class Metrics:
    """Metrics of the server; safe to use from every thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[Labels] = Counter()
        self._request_latency = Histogram(LATENCY_MICROS)
        self._runtime_latency = Histogram(LATENCY_MICROS)

    def request(self, model: str, api: str, entrypoint: str, code: GrpcCode, micros: float) -> None:
        """Count a request that has been answered; the latency is that of requests that went well."""
        with self._lock:
            self._requests[model, code.name] += 1
            if code is GrpcCode.OK:
                self._request_latency.add((model, api, entrypoint), micros, 1)

    def run(self, model: str, api: str, seconds: float) -> None:
        with self._lock:
            self._runtime_latency.add((model, api, "TF1"), seconds * _MICROS, 1)

    def text(self) -> bytes:
        """The metrics as Prometheus reads them."""
        name = f"{_PREFIX}request_count"
        lines = [f"# TYPE {name} counter"]
        with self._lock:
            for key, count in sorted(self._requests.items()):
                lines.append(f"{name}{{{_labelled(('model_name', 'status'), key)}}} {count}")
            lines += _lines(self._request_latency, "request_latency", "entrypoint")
            lines += _lines(self._runtime_latency, "runtime_latency", "runtime")
        return ("\n".join(lines) + "\n").encode()


def _lines(histogram: Histogram, of: str, last_label: str) -> Iterator[str]:
    name = f"{_PREFIX}{of}"
    yield f"# TYPE {name} histogram"
    for key, latencies in sorted(histogram.distributions().items()):
        labels = _labelled(("model_name", "API", last_label), key)
        bounds = [*(f"{bound:g}" for bound in latencies.bounds), "+Inf"]
        for bound, count in zip(bounds, accumulate(latencies.counts), strict=True):
            yield f'{name}_bucket{{{labels},le="{bound}"}} {count}'
        yield f"{name}_sum{{{labels}}} {latencies.total:.12g}"
        yield f"{name}_count{{{labels}}} {sum(latencies.counts)}"


def _labelled(names: Labels, values: Labels) -> str:
    return ",".join(f'{name}="{escaped(value)}"' for name, value in zip(names, values, strict=True))
