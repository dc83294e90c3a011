"""TensorFlow's own batching: what it tells of batches, and the backend that runs requests through it."""

import itertools
import re
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfs_proxy.embedded.core.metrics import BatchMetrics
from tfs_proxy.embedded.core.servable import Array, PreparedCall
from tfs_proxy.embedded.errors import ServingError, invalid, tensorflow_errors
from tfs_proxy.embedded.model_config import BatchOptions
from tfs_proxy.embedded.tensorflow import runtime
from tfs_proxy.embedded.tensorflow.session import SessionBackend
from tfs_proxy.values.resources import available_resources
from tfs_proxy.wire.protos.tensors import FLOAT8, QUANTIZED, SMALL

_MICROS = 1e6


class Instrumentation:
    """Counts batches by tensors that go through the batch op with a request's own, at some 50 µs a request.

    Without ``metrics`` there are none. ``pads`` if batches are padded.
    """

    def __init__(self, metrics: BatchMetrics | None = None, *, pads: bool = False) -> None:
        self.kinds = () if metrics is None else (runtime.as_dtype("int64"),)
        """The types of its inputs, and of its outputs."""
        self._metrics = metrics
        self._pads = pads
        self._numbers = itertools.count()

    def row_numbers(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """A number for each row, as an input. The rows are counted here, whatever becomes of them."""
        if self._metrics is None:
            return ()
        size = len(arrays[0])
        self._metrics.queued(size, len(arrays))
        first = next(self._numbers) << 32
        return (np.arange(first, first + size),)

    def batch_lines(self, row_numbers: Sequence[Any]) -> Sequence[Any]:
        """Outputs for a batch; of a row: the number of its batch's first one, size, padding, start in µs."""
        if self._metrics is None:
            return ()
        arrays = runtime.array_operations
        math = runtime.math_operations
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
        """Count what a request that was queued at this time, in seconds since 1970, tells of its batches.

        The one with a batch's first row counts it; each piece of a split request waited by itself.
        """
        if self._metrics is None:
            return
        (numbers,) = row_numbers
        (lines,) = batch_lines
        firsts = lines[:, 0] == numbers
        for _, size, padding, began in lines[firsts].tolist():
            self._metrics.ran(size, padding)
            self._metrics.waited(began - queued_at * _MICROS)
        if not firsts[0]:
            self._metrics.waited(int(lines[0, 3]) - queued_at * _MICROS)

    def _padding(self, numbers: Any) -> Any:
        """Number of rows that are padding: the batch op repeats the first row of the last request."""
        if not self._pads:
            return runtime.constant(0, "int64")
        math = runtime.math_operations
        one = runtime.constant(1, "int64")
        last = _element(
            numbers, math.sub(runtime.array_operations.size(numbers, out_type=numbers.dtype), one)
        )
        alike = math.cast(math.equal(numbers, last), DstT=numbers.dtype)
        return math.sub(math._sum(alike, runtime.constant([0], "int32")), one)  # noqa: SLF001


def _element(numbers: Any, index: Any) -> Any:
    return runtime.array_operations.gather_v2(numbers, index, runtime.constant(0, "int32"))


MAX_QUEUES = 64
"""Row shapes beyond this many per signature run unbatched: each queue stays in the graph for good."""

MAX_EXTRA_FUNCTIONS = 64
"""Sets of outputs of no signature beyond this many run unbatched: each is a copy of the graph."""

_UNSHARED_OPS = frozenset({"Iterator", "IteratorV2"})
"""Ops whose state, set up at load, a function does not share: models with one run unbatched."""

_UNJOINED_TYPES = frozenset({*QUANTIZED, *FLOAT8, *SMALL})
"""Types that the batch op can't join: quantized ones, floats of eight bits, integers of four bits and less.
Calls with one run unbatched."""

_OF_THE_OP = re.compile(
    r"^(?:\{\{function_node [^}]*\}\} )+"
    r"|(?<=sizes of the input tensors)\. 0th dimension size: [^\n]*"
    r"|\n\t \[\[(?:[^{}\]]*|\{\{node BatchFunction\w*\}\})\]\](?=\n|$)"
)
"""Text that the batch op adds to an error."""


class BatchingBackend:
    """A session whose calls are batched: those of whole signatures, of some outputs, of several at once."""

    waits = True

    def __init__(
        self, backend: SessionBackend, options: BatchOptions, instrumentation: Instrumentation
    ) -> None:
        self._backend = backend
        threads = options.num_batch_threads or available_resources().cores
        self.at_once = 2 * threads * options.max_batch_size  # one set of batches runs, the next one fills
        self._scheduler = _Scheduler(backend, options)
        self._instrumentation = instrumentation
        self._whole = {
            (
                frozenset(tensor.name for tensor in signature.inputs.values()),
                frozenset(tensor.name for tensor in signature.outputs.values()),
            )
            for signature in backend.signatures.values()
        }
        self._calls: dict[tuple[frozenset[str], frozenset[str]], PreparedCall] = {}
        self._making = threading.Lock()
        self._extra = 0
        self.signatures = backend.signatures

    def prepare(self, feeds: Sequence[str], fetches: Sequence[str]) -> PreparedCall:
        """A batched call; those of the same tensors share their queues, whatever the tensors' order."""
        inputs = sorted(feeds)
        outputs = sorted(set(fetches))
        call = self._shared(inputs, outputs)
        taken = [feeds.index(name) for name in inputs]
        returned = [outputs.index(name) for name in fetches]

        def ordered(arrays: Sequence[Array]) -> Sequence[Array]:
            results = call([arrays[index] for index in taken])
            return [results[index] for index in returned]

        return call if (inputs, outputs) == (list(feeds), list(fetches)) else ordered

    def _shared(self, feeds: Sequence[str], fetches: Sequence[str]) -> PreparedCall:
        key = frozenset(feeds), frozenset(fetches)
        with self._making:
            call = self._calls.get(key)
            if call is None:
                call = self._calls[key] = self._made(feeds, fetches, extra=key not in self._whole)
            return call

    def _made(self, feeds: Sequence[str], fetches: Sequence[str], *, extra: bool) -> PreparedCall:
        if not feeds:
            raise invalid("Batching Run() must have at least one input tensor")
        direct = self._backend.prepare(feeds, fetches)
        if not fetches or (extra and self._extra >= MAX_EXTRA_FUNCTIONS):
            return direct
        kinds = {kind.as_datatype_enum for kind in self._scheduler.kinds([*feeds, *fetches])}
        if self._backend.op_types & _UNSHARED_OPS or kinds & _UNJOINED_TYPES:
            return direct
        batched = BatchCall(self._scheduler, feeds, fetches, self._instrumentation, direct)
        self._extra += extra
        return batched

    def close(self) -> None:
        self._calls.clear()
        self._backend.close()


class _Scheduler:
    """Adds functions and queues to a loaded model's graph; they all share one batch scheduler."""

    def __init__(self, backend: SessionBackend, options: BatchOptions) -> None:
        self.options = options
        self._backend = backend
        self._changing = threading.Lock()
        self._queues = itertools.count()

    def function(self, feeds: Sequence[str], fetches: Sequence[str], instrumentation: Instrumentation) -> Any:
        """The function of a signature: its inputs and the instrumentation's to the outputs of both."""
        with self._changing, tensorflow_errors():
            return runtime.graph_function(
                self._backend.graph, feeds, fetches, instrumentation.kinds, instrumentation.batch_lines
            )

    def kinds(self, names: Sequence[str]) -> list[Any]:
        return runtime.kinds_of(self._backend.graph, names)

    def queue(self, function: Any, kinds: Sequence[Any], out_kinds: Sequence[Any]) -> PreparedCall:
        """A queue of its own in front of a function."""
        options = self.options
        with self._changing, tensorflow_errors(), self._backend.graph.as_default():
            inputs = [runtime.array_operations.placeholder(kind) for kind in kinds]
            outputs = runtime.batch_function(
                in_tensors=inputs,
                captured_tensors=[],
                f=function,
                num_batch_threads=options.num_batch_threads or available_resources().cores,
                max_batch_size=options.max_batch_size,
                batch_timeout_micros=options.batch_timeout_micros,
                Tout=out_kinds,
                max_enqueued_batches=options.max_enqueued_batches,
                allowed_batch_sizes=options.op_batch_sizes,
                shared_name=f"batches_{id(self)}",
                batching_queue=f"queue_{next(self._queues)}",
                enable_large_batch_splitting=options.splits,
            )
        return self._backend.prepare([tensor.name for tensor in inputs], [tensor.name for tensor in outputs])


class BatchCall:
    """One signature's function, and a queue in front of it per shape of its rows."""

    def __init__(
        self,
        scheduler: _Scheduler,
        feeds: Sequence[str],
        fetches: Sequence[str],
        instrumentation: Instrumentation,
        direct: PreparedCall,
    ) -> None:
        self._scheduler = scheduler
        self._max_batch_size = scheduler.options.max_batch_size
        self._instrumentation = instrumentation
        self._direct = direct
        self._queues: dict[tuple[tuple[int, ...], ...], PreparedCall] = {}
        self._lock = threading.Lock()
        self._function = scheduler.function(feeds, fetches, instrumentation)
        self._kinds = [*scheduler.kinds(feeds), *instrumentation.kinds]
        self._out_kinds = [*scheduler.kinds(fetches), *instrumentation.kinds]
        self._outputs = len(fetches)

    def __call__(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """Raises ServingError: with the scheduler's text if the queue is full, or the batch too large."""
        if any(not array.shape for array in arrays):
            raise invalid("Batching Run() input tensors must have at least one dimension")
        sizes = {array.shape[0] for array in arrays}
        if len(sizes) > 1:
            raise invalid("Batching Run() input tensors must have equal 0th-dimension size")
        if not int(sizes.pop()):
            return self._direct(arrays)
        shapes = tuple(array.shape[1:] for array in arrays)
        queue = self._queues.get(shapes) or self._queue(shapes)
        return self._direct(arrays) if queue is None else self._run(queue, arrays)

    def _run(self, queue: PreparedCall, arrays: Sequence[Array]) -> Sequence[Array]:
        row_numbers = self._instrumentation.row_numbers(arrays)
        size = len(arrays[0])
        if size > self._max_batch_size:
            raise invalid(f"Task size {size} is larger than maximum input batch size {self._max_batch_size}")
        queued_at = time.time()
        try:
            results = queue([*arrays, *row_numbers])
        except ServingError as error:
            raise ServingError(error.code, _OF_THE_OP.sub("", error.text)) from error
        self._instrumentation.count(row_numbers, results[self._outputs :], queued_at)
        return results[: self._outputs]

    def _queue(self, shapes: tuple[tuple[int, ...], ...]) -> PreparedCall | None:
        with self._lock:
            if shapes not in self._queues:
                if len(self._queues) >= MAX_QUEUES:
                    return None
                self._queues[shapes] = self._scheduler.queue(self._function, self._kinds, self._out_kinds)
            return self._queues[shapes]
