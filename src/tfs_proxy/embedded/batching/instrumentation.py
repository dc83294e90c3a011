"""Batch instrumentation: if metrics are exported, one more output tells each row about its batch.

TensorFlow counts batches only in its C++ parts, which Python cannot read. So each request brings a
number for each of its rows, no two alike, and gets back what its rows' batch was like.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfs_proxy.embedded.core.metrics import BatchMetrics
from tfs_proxy.embedded.core.servable import Array
from tfs_proxy.embedded.tensorflow import runtime

_MICROS = 1e6


class Instrumentation:
    """What goes through the batch op beside a request's own tensors: nothing, unless batches are counted."""

    kinds: Sequence[Any] = ()
    """The types of its inputs, and of its outputs."""

    def row_numbers(self, arrays: Sequence[Array]) -> Sequence[Array]:  # noqa: ARG002
        """The inputs that go with a request's own."""
        return ()

    def batch_lines(self, row_numbers: Sequence[Any]) -> Sequence[Any]:  # noqa: ARG002
        """The outputs, in the graph, for the inputs of a whole batch."""
        return ()

    def count(self, row_numbers: Sequence[Array], batch_lines: Sequence[Array], queued_at: float) -> None:
        """Count the batch of a request that was queued at ``queued_at``, in seconds since 1970."""


class BatchInstrumentation(Instrumentation):
    """Counts batches, at some 50 microseconds a request. ``pads`` is whether batches are padded."""

    def __init__(self, metrics: BatchMetrics, *, pads: bool) -> None:
        self.kinds = (runtime.as_dtype("int64"),)
        self._metrics = metrics
        self._padding = _padding if pads else _no_padding
        self._numbers = itertools.count()

    def row_numbers(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """A number for each row. The rows are counted here, whatever becomes of them."""
        size = len(arrays[0])
        self._metrics.queued(size, len(arrays))
        first = next(self._numbers) << 32
        return (np.arange(first, first + size),)

    def batch_lines(self, row_numbers: Sequence[Any]) -> Sequence[Any]:
        """For each row the number of its batch's first one, the batch's size, padding, and start in µs."""
        arrays, math = runtime.array_operations, runtime.math_operations
        (numbers,) = row_numbers
        size = arrays.size(numbers, out_type=numbers.dtype)
        began = math.cast(
            math.mul(runtime.timestamp(), runtime.constant(_MICROS, "float64")), DstT=numbers.dtype
        )
        line = arrays.pack(
            [_element(numbers, runtime.constant(0, "int64")), size, self._padding(numbers), began]
        )
        return (
            arrays.tile(arrays.expand_dims(line, axis=0), arrays.pack([size, runtime.constant(1, "int64")])),
        )

    def count(self, row_numbers: Sequence[Array], batch_lines: Sequence[Array], queued_at: float) -> None:
        """The request with its first row counts a batch; each piece of a split request waited by itself."""
        (numbers,), (lines,) = row_numbers, batch_lines
        firsts = lines[:, 0] == numbers
        for _, size, padding, began in lines[firsts].tolist():
            self._metrics.ran(size, padding)
            self._metrics.waited(began - queued_at * _MICROS)
        if not firsts[0]:
            self._metrics.waited(int(lines[0, 3]) - queued_at * _MICROS)


def _no_padding(_numbers: Any) -> Any:
    return runtime.constant(0, "int64")


def _padding(numbers: Any) -> Any:
    """How many rows are padding: the batch op repeats the first row of the last request."""
    math = runtime.math_operations
    one = runtime.constant(1, "int64")
    last = _element(numbers, math.sub(runtime.array_operations.size(numbers, out_type=numbers.dtype), one))
    alike = math.cast(math.equal(numbers, last), DstT=numbers.dtype)
    return math.sub(math._sum(alike, runtime.constant([0], "int32")), one)  # noqa: SLF001


def _element(numbers: Any, index: Any) -> Any:
    return runtime.array_operations.gather_v2(numbers, index, runtime.constant(0, "int32"))
