"""Requests of one signature gathered into batches, on TensorFlow's own C++ batch scheduler.

The signature's graph is imported into a function, which the batch op calls for a whole batch; it
shares the session's variables. Requests whose rows differ in shape go to queues of their own, so
that none fails another. ``num_batch_threads`` counts per signature of a model.
"""

import os
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from tfs_proxy.embedded import runtime
from tfs_proxy.embedded.errors import ServingError, invalid, tensorflow_errors
from tfs_proxy.embedded.model_config import read_text
from tfs_proxy.embedded.servable import Array, Call
from tfs_proxy.embedded.session import SessionBackend
from tfs_proxy.embedded.tall import TallArray
from tfs_proxy.errors import SettingsError
from tfs_proxy.protos import BatchingParameters

MAX_QUEUES = 64
"""Row shapes beyond this many per signature run unbatched: each queue stays in the graph for good."""

_OF_THE_OP = re.compile(
    r"^(?:\{\{function_node batched_[^}]*\}\} )+|\n\t \[\[(?:\{\{node )?BatchFunction\w*(?:\}\})?\]\]"
)
"""What an error text gains on its way through the batch op."""


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """TF Serving's batching parameters with its defaults (contract 3.4)."""

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int = 0
    allowed_batch_sizes: tuple[int, ...] = ()
    splits: bool = False
    max_execution_batch_size: int = 0

    @property
    def op_batch_sizes(self) -> list[int]:
        """The batch op's allowed sizes; with splitting its last one is the size of the pieces."""
        if self.allowed_batch_sizes or not self.splits:
            return list(self.allowed_batch_sizes)
        return list(range(1, (self.max_execution_batch_size or self.max_batch_size) + 1))


def read_options(path: str) -> BatchOptions:
    """The options of a batching parameters file; defaults where none is named.

    Raises SettingsError where it can't be read, or its numbers do not fit together.
    """
    message = read_text(path, BatchingParameters()) if path else BatchingParameters()
    given = {
        name: getattr(message, name).value
        for name in ("max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "num_batch_threads")
        if message.HasField(name)
    }
    options = BatchOptions(
        **given,
        allowed_batch_sizes=tuple(message.allowed_batch_sizes),
        splits=message.enable_large_batch_splitting.value,
        max_execution_batch_size=message.max_execution_batch_size.value,
    )
    _check(options, path)
    return options


def _check(options: BatchOptions, path: str) -> None:
    if options.max_batch_size < 1 or options.max_enqueued_batches < 1 or options.batch_timeout_micros < 0:
        raise SettingsError(f"{path}: max_batch_size and max_enqueued_batches must be positive.")
    sizes = options.allowed_batch_sizes
    if list(sizes) != sorted(set(sizes)):
        raise SettingsError(f"{path}: allowed_batch_sizes entries must be in increasing order.")
    last = options.max_execution_batch_size if options.splits else options.max_batch_size
    if sizes and last and sizes[-1] != last:
        name = "max_execution_batch_size" if options.splits else "max_batch_size"
        raise SettingsError(f"{path}: the last entry of allowed_batch_sizes must be {name}, {last}.")
    if options.splits and options.max_execution_batch_size > options.max_batch_size:
        raise SettingsError(f"{path}: max_execution_batch_size is larger than max_batch_size.")


class BatchingBackend:
    """A session whose signatures are run in batches; anything else runs as it comes."""

    def __init__(self, backend: SessionBackend, options: BatchOptions) -> None:
        self._backend = backend
        self._options = options
        self.signatures = backend.signatures
        self._whole = {
            (
                frozenset(tensor.name for tensor in signature.inputs.values()),
                frozenset(tensor.name for tensor in signature.outputs.values()),
            )
            for signature in backend.signatures.values()
            if signature.inputs and signature.outputs
        }

    def prepare(self, feeds: Sequence[str], fetches: Sequence[str]) -> Call:
        """A batched call where these are a signature's whole inputs and outputs."""
        direct = self._backend.prepare(feeds, fetches)
        if (frozenset(feeds), frozenset(fetches)) not in self._whole:
            return direct
        return BatchCall(self._backend, feeds, fetches, self._options, direct)

    def close(self) -> None:
        """Close the session."""
        self._backend.close()


class BatchCall:
    """One signature's function, and a queue in front of it per shape of its rows."""

    def __init__(
        self,
        backend: SessionBackend,
        feeds: Sequence[str],
        fetches: Sequence[str],
        options: BatchOptions,
        direct: Call,
    ) -> None:
        self._backend = backend
        self._options = options
        self._direct = direct
        self._queues: dict[tuple[tuple[int, ...], ...], Call] = {}
        self._lock = threading.Lock()
        with tensorflow_errors():
            self._function = runtime.graph_function(backend.graph, feeds, fetches)
            self._kinds = [backend.graph.get_tensor_by_name(feed).dtype.base_dtype for feed in feeds]
            self._out_kinds = [backend.graph.get_tensor_by_name(each).dtype.base_dtype for each in fetches]

    def __call__(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """Raises ServingError: with the scheduler's text where the queue is full, or the batch too large."""
        if any(type(array) is TallArray for array in arrays):
            return self._direct(arrays)
        self._check(arrays)
        shapes = tuple(array.shape[1:] for array in arrays)
        queue = self._queues.get(shapes) or self._queue(shapes)
        try:
            return queue(arrays)
        except ServingError as error:
            raise ServingError(error.code, _OF_THE_OP.sub("", error.text)) from error

    def _check(self, arrays: Sequence[Array]) -> None:
        if any(not array.shape for array in arrays):
            raise invalid("Batching input tensors must have at least one dimension")
        sizes = {array.shape[0] for array in arrays}
        if len(sizes) > 1:
            raise invalid("Batching Run() input tensors must have equal 0th-dimension size")
        size = sizes.pop()
        if size > self._options.max_batch_size:
            raise invalid(
                f"Task size {size} is larger than maximum input batch size {self._options.max_batch_size}"
            )

    def _queue(self, shapes: tuple[tuple[int, ...], ...]) -> Call:
        with self._lock:
            if shapes not in self._queues:
                if len(self._queues) >= MAX_QUEUES:
                    return self._direct
                self._queues[shapes] = self._add_queue(len(self._queues))
            return self._queues[shapes]

    def _add_queue(self, index: int) -> Call:
        options = self._options
        name = self._function.name
        with tensorflow_errors(), self._backend.graph.as_default():
            inputs = [runtime.array_operations().placeholder(kind) for kind in self._kinds]
            outputs = runtime.batch_function(
                in_tensors=inputs,
                captured_tensors=[],
                f=self._function,
                num_batch_threads=options.num_batch_threads or os.cpu_count() or 1,
                max_batch_size=options.max_batch_size,
                batch_timeout_micros=options.batch_timeout_micros,
                Tout=self._out_kinds,
                max_enqueued_batches=options.max_enqueued_batches,
                allowed_batch_sizes=options.op_batch_sizes,
                shared_name=f"batch_{name}_{id(self)}",
                batching_queue=f"shape_{index}",
                enable_large_batch_splitting=options.splits,
            )
        return self._backend.prepare([each.name for each in inputs], [each.name for each in outputs])
