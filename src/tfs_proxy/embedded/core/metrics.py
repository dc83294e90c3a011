"""Counters and histograms under TF Serving's names, in Prometheus' text form."""

import threading
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from tfs_proxy.wire.grpc_codes import GrpcCode

Labels = tuple[str, ...]

LATENCY_MICROS = tuple(10 * 1.8**power for power in range(33))
"""Upper bounds of TF Serving's latency buckets, in microseconds."""

EXAMPLES = tuple(float(2**power) for power in range(15))

QUEUING_MICROS = tuple(100 * 1.2**power for power in range(52))
"""Upper bounds of TF Serving's buckets for the time in a batching queue, in microseconds."""

_PENDING = 4096
"""How many measurements may wait to be sorted in."""

BATCH_SIZES = tuple(float(2**power) for power in range(14))


@dataclass(slots=True)
class Counter:
    """Counts by label values."""

    name: str
    labels: Labels
    values: dict[Labels, int] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Its text form."""
        head = [f"# TYPE {self.name} counter"]
        return head + [
            f"{self.name}{{{_labelled(self.labels, key)}}} {value}"
            for key, value in sorted(self.values.items())
        ]


@dataclass(slots=True)
class Distribution:
    """One histogram's numbers."""

    counts: list[int]
    total: float = 0.0


@dataclass(slots=True)
class Histogram:
    """Distributions by label values."""

    name: str
    labels: Labels
    bounds: Sequence[float]
    values: dict[Labels, Distribution] = field(default_factory=dict)

    def add(self, key: Labels, value: float) -> None:
        """Count one value."""
        found = self._of(key)
        found.counts[bisect_left(self.bounds, value)] += 1
        found.total += value

    def add_all(self, key: Labels, values: Sequence[float]) -> None:
        """Count many values at once."""
        found = self._of(key)
        places = np.searchsorted(self.bounds, values)
        for place, count in zip(*np.unique(places, return_counts=True), strict=True):
            found.counts[place] += int(count)
        found.total += sum(values)

    def _of(self, key: Labels) -> Distribution:
        found = self.values.get(key)
        if found is None:
            found = self.values[key] = Distribution([0] * (len(self.bounds) + 1))
        return found

    def lines(self) -> list[str]:
        """Its text form."""
        lines = [f"# TYPE {self.name} histogram"]
        for key, found in sorted(self.values.items()):
            labelled = _labelled(self.labels, key)
            below = 0
            for bound, count in zip((*self.bounds, inf), found.counts, strict=True):
                below += count
                text = "+Inf" if bound == inf else f"{bound:g}"
                bucket = ",".join(filter(None, (labelled, f'le="{text}"')))
                lines.append(f"{self.name}_bucket{{{bucket}}} {below}")
            lines.append(f"{self.name}_sum{{{labelled}}} {found.total:.12g}")
            lines.append(f"{self.name}_count{{{labelled}}} {below}")
        return lines


class BatchMetrics:
    """What batching counts, under the names of TF Serving's batching session; safe for every thread.

    Batches that fail are not seen: their witness does not come back.
    """

    def __init__(self) -> None:
        prefix = ":tensorflow:serving:batching_session:"
        self._lock = threading.Lock()
        self._queuing = Histogram(f"{prefix}queuing_latency", ("thread_pool_name",), QUEUING_MICROS)
        self._runs = Counter(f"{prefix}wrapped_run_count", ())
        self._inputs = Histogram(f"{prefix}input_batch_size", (), BATCH_SIZES)
        self._processed = Histogram(f"{prefix}processed_batch_size", (), BATCH_SIZES)
        self._padding = Histogram(f"{prefix}padding_size", ("execution_batch_size",), BATCH_SIZES)

    def queued(self, size: int, inputs: int) -> None:
        """Count a request's rows, once for each of its inputs as TF Serving does."""
        with self._lock:
            for _ in range(inputs):
                self._inputs.add((), size)

    def waited(self, micros: float) -> None:
        """Count the time that a request, or a piece of one, has waited for its batch."""
        with self._lock:
            self._queuing.add(("",), micros)

    def ran(self, size: int, padding: int) -> None:
        """Count a batch: its rows with the padding in, and the padding."""
        with self._lock:
            self._runs.values[()] = self._runs.values.get((), 0) + 1
            self._processed.add((), size)
            self._padding.add((str(size),), padding)

    def lines(self) -> list[str]:
        """Its text form; empty before the first request."""
        with self._lock:
            series = (self._queuing, self._runs, self._inputs, self._processed, self._padding)
            return [line for each in series if each.values for line in each.lines()]


class Metrics:
    """What the server counts; safe to use from every thread."""

    def __init__(self) -> None:
        prefix = ":tensorflow:serving:"
        self.batches = BatchMetrics()
        self._lock = threading.Lock()
        self._answered: deque[tuple[str, str, str, GrpcCode, float]] = deque()
        self._ran: deque[tuple[str, str, float]] = deque()
        self._requests = Counter(f"{prefix}request_count", ("model_name", "status"))
        self._request_latency = Histogram(
            f"{prefix}request_latency", ("model_name", "API", "entrypoint"), LATENCY_MICROS
        )
        self._runtime_latency = Histogram(
            f"{prefix}runtime_latency", ("model_name", "API", "runtime"), LATENCY_MICROS
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
        self._answered.append((model, api, entrypoint, code, micros))
        if len(self._answered) > _PENDING:
            self._settle()

    def run(self, model: str, api: str, seconds: float) -> None:
        """Count a run of TensorFlow."""
        self._ran.append((model, api, seconds))
        if len(self._ran) > _PENDING:
            self._settle()

    def _settle(self) -> None:
        """PERF: sort in what requests have left; they only leave it, which takes a tenth of the time."""
        with self._lock:
            answered, ran = _taken(self._answered), _taken(self._ran)
            for (model, api, entrypoint, code), found in answered.items():
                status = (model, code.name)
                self._requests.values[status] = self._requests.values.get(status, 0) + len(found)
                if code is GrpcCode.OK:
                    self._request_latency.add_all((model, api, entrypoint), found)
            for (model, api), found in ran.items():
                self._runtime_latency.add_all((model, api, "TF1"), [seconds * 1e6 for seconds in found])

    def examples(self, model: str, count: int) -> None:
        """Count a request's examples."""
        with self._lock:
            self._examples.add((model,), count)
            self._example_total.values[model,] = self._example_total.values.get((model,), 0) + count

    def load(self, path: str, code: GrpcCode, seconds: float) -> None:
        """Count a load of a model version; warming it up is not part of it."""
        status = "success" if code is GrpcCode.OK else "fail"
        with self._lock:
            self._loads.values[path, status] = self._loads.values.get((path, status), 0) + 1
            self._load_latency.values[path,] = self._load_latency.values.get((path,), 0) + int(seconds * 1e6)

    def warmup(self, path: str, seconds: float) -> None:
        """Count a model version's warm-up that went well."""
        with self._lock:
            self._warmup_latency.add((path, "OK"), seconds * 1e6)

    def count_of(self, name: str) -> int:
        """What a counter's first series has come to, by the name that TensorFlow knows it under (``/a/b``).

        0 if there is none, or if it is not a plain counter.
        """
        self._settle()
        counters = (self._requests, self._example_total, self._loads, self._load_latency)
        with self._lock:
            for each in counters:
                if each.values and each.name == name.replace("/", ":"):
                    return each.values[min(each.values)]
        return 0

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        self._settle()
        with self._lock:
            series = (
                self._requests,
                self._request_latency,
                self._runtime_latency,
                self._examples,
                self._example_total,
                self._loads,
                self._load_latency,
                self._warmup_latency,
            )
            lines = [line for each in series if each.values for line in each.lines()]
        return ("\n".join([*lines, *self.batches.lines()]) + "\n").encode()


def _taken(left: deque[Any]) -> dict[Any, list[float]]:
    """What requests have left until now, taken away: values, the last of each tuple, by what is before it."""
    found: dict[Any, list[float]] = defaultdict(list)
    for _ in range(len(left)):
        entry = left.popleft()
        found[entry[:-1]].append(entry[-1])
    return found


def _labelled(names: Labels, values: Labels) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
