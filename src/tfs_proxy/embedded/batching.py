"""TensorFlow's own batching: the backend that runs requests through it."""

import itertools
import re
import threading
from collections.abc import Sequence
from typing import Any

from tfs_proxy.embedded.core.servable import Array, PreparedCall
from tfs_proxy.embedded.errors import ServingError, invalid, tensorflow_errors
from tfs_proxy.embedded.model_config import BatchOptions
from tfs_proxy.embedded.tensorflow import runtime
from tfs_proxy.embedded.tensorflow.session import SessionBackend
from tfs_proxy.values.resources import available_resources

MAX_QUEUES = 64
"""Row shapes beyond this many per signature run unbatched: each queue stays in the graph for good."""

MAX_EXTRA_FUNCTIONS = 64
"""Sets of outputs of no signature beyond this many run unbatched: each is a copy of the graph."""

_UNSHARED_OPS = frozenset({"Iterator", "IteratorV2"})
"""Ops whose state, set up at load, a function does not share: models with one run unbatched."""

_OF_THE_OP = re.compile(
    r"^(?:\{\{function_node [^}]*\}\} )+"
    r"|(?<=sizes of the input tensors)\. 0th dimension size: [^\n]*"
    r"|\n\t \[\[(?:[^{}\]]*|\{\{node BatchFunction\w*\}\})\]\](?=\n|$)"
)
"""Text that the batch op adds to an error."""


class BatchingBackend:
    """A session whose calls are batched: those of whole signatures, of some outputs, of several at once."""

    waits = True

    def __init__(self, backend: SessionBackend, options: BatchOptions) -> None:
        self._backend = backend
        threads = options.num_batch_threads or available_resources().cores
        self.at_once = 2 * threads * options.max_batch_size  # one set of batches runs, the next one fills
        self._scheduler = _Scheduler(backend, options)
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
        if self._backend.op_types & _UNSHARED_OPS:
            return direct
        batched = BatchCall(self._scheduler, feeds, fetches, direct)
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

    def function(self, feeds: Sequence[str], fetches: Sequence[str]) -> Any:
        """The function of a signature: its inputs to its outputs."""
        with self._changing, tensorflow_errors():
            return runtime.graph_function(self._backend.graph, feeds, fetches)

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
        direct: PreparedCall,
    ) -> None:
        self._scheduler = scheduler
        self._max_batch_size = scheduler.options.max_batch_size
        self._direct = direct
        self._queues: dict[tuple[tuple[int, ...], ...], PreparedCall] = {}
        self._lock = threading.Lock()
        self._function = scheduler.function(feeds, fetches)
        self._kinds = scheduler.kinds(feeds)
        self._out_kinds = scheduler.kinds(fetches)

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
        size = len(arrays[0])
        if size > self._max_batch_size:
            raise invalid(f"Task size {size} is larger than maximum input batch size {self._max_batch_size}")
        try:
            return queue(arrays)
        except ServingError as error:
            raise ServingError(error.code, _OF_THE_OP.sub("", error.text)) from error

    def _queue(self, shapes: tuple[tuple[int, ...], ...]) -> PreparedCall | None:
        with self._lock:
            if shapes not in self._queues:
                if len(self._queues) >= MAX_QUEUES:
                    return None
                self._queues[shapes] = self._scheduler.queue(self._function, self._kinds, self._out_kinds)
            return self._queues[shapes]
