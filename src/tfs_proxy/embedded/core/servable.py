"""One loaded model version: its signatures, and the calls into TensorFlow that run them."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from functools import partial
from time import perf_counter, process_time
from typing import Any, Protocol

import numpy.typing as npt
from msgspec import Struct

from tfs_proxy.embedded.core.metrics import Metrics
from tfs_proxy.embedded.errors import MAX_STRING_DIMENSIONS, caller_left, invalid, too_many_dimensions
from tfs_proxy.values.signature import CLASSIFY_METHOD, PREDICT_METHOD, REGRESS_METHOD
from tfs_proxy.wire.data_types import data_type_name
from tfs_proxy.wire.protos import SignatureDef
from tfs_proxy.wire.protos.predict import model_spec
from tfs_proxy.wire.protos.tensors import data_type_of, numpy_type

Array = npt.NDArray[Any]

DEFAULT_SIGNATURE = "serving_default"

_METHODS = (PREDICT_METHOD, CLASSIFY_METHOD, REGRESS_METHOD)

INLINE_LIMIT_SECONDS = 0.001
"""A call that takes longer than this on average does not run on the event loop's thread."""

SLOW_SECONDS = 0.1
"""A call that computes for longer waits for its turn, and its client may leave meanwhile: more at once end no
sooner. Many short ones keep TensorFlow's threads busier than few; those that wait for a device cost none."""

CallerWaits = Callable[[], bool]
CALLER_WAITS: ContextVar[CallerWaits] = ContextVar("caller_waits", default=lambda: True)
"""Tells if the caller of what this thread runs still waits for it."""

MAX_RUNNERS = 64
"""Most calls that are kept; further filters of outputs get none: each stays while the model is loaded."""

_RECENT = 0.2
"""The weight of the newest measurement in a call's average."""


PreparedCall = Callable[[Sequence[Array]], Sequence[Array]]
"""Runs one set of tensors: arrays in the order of its feeds to arrays in that of its fetches.

Raises ServingError with TensorFlow's code and text.
"""


class Backend(Protocol):
    """Runner of a servable: a TF1 session, or a batcher in front of one.

    If it ``waits``, a call may take longer than its own computing: others are in front of it. More than
    ``at_once`` slow calls at a time are of no use to it.
    """

    @property
    def at_once(self) -> int:
        """Number of slow calls that share what computes them."""

    @property
    def waits(self) -> bool:
        """True if calls wait for others."""

    def prepare(self, feeds: Sequence[str], fetches: Sequence[str]) -> PreparedCall:
        """A call from and to these tensor names."""

    def close(self) -> None:
        """Give its memory back."""


class Tensor(Struct, frozen=True):
    """One input or output of a signature: its alias, its name in the graph, and its type."""

    alias: str
    name: str
    data_type: int


class ServableSignature:
    """One entry of a model's signature_def, read once.

    ``unfit`` says why predict refuses it, which it does only if method names are checked.
    """

    def __init__(self, name: str, message: SignatureDef, *, check_method: bool = False) -> None:
        self.name = name
        self.message = message
        self.checked = check_method
        self.unfit = ""
        if check_method and message.method_name not in _METHODS:
            self.unfit = (
                f"Expected prediction signature method_name to be one of {{{', '.join(_METHODS)}}}. "
                f"Was: {message.method_name}"
            )
        self.inputs = {alias: Tensor(alias, info.name, info.dtype) for alias, info in message.inputs.items()}
        # NOTE: sorted, for a protobuf map has another order in each process: answers would differ by it.
        self.outputs = {
            alias: Tensor(alias, info.name, info.dtype) for alias, info in sorted(message.outputs.items())
        }
        self.aliases = tuple(self.outputs)


class Runner:
    """A prepared call with its feeds in order, and how long it takes: the unit that is timed."""

    def __init__(
        self,
        backend: Backend,
        inputs: Sequence[Tensor],
        fetches: Sequence[str],
        observe: Callable[[float], None],
        turns: AbstractContextManager[Any],
    ) -> None:
        """``observe`` receives how long each run took, in seconds; a slow one takes one of the ``turns``."""
        ordered = {tensor.name: tensor for tensor in sorted(inputs, key=lambda tensor: tensor.name)}
        self._inputs = tuple(ordered.values())
        self._kinds = [numpy_type(tensor.data_type) for tensor in self._inputs]
        self._prepare = partial(backend.prepare, [tensor.name for tensor in self._inputs], fetches)
        self._waits = backend.waits
        self._turns = turns
        self._under_way: list[None] = []
        self._is_slow = False
        self._preparing = threading.Lock()
        self._call: PreparedCall | None = None
        self._observe = observe
        self._calls = 0
        self._seconds = 0.0
        self._last_seconds = 0.0

    @property
    def quick(self) -> bool:
        """True if its measured time allows it to run on a thread where it holds up everything else.

        The first two calls are not: they trace, optimise and allocate. Nor is one that waits for others:
        a batch would never have more than it.
        """
        return self._calls > 2 and self._seconds < INLINE_LIMIT_SECONDS and not self._waits  # noqa: PLR2004

    def run(self, arrays: Mapping[str, Array]) -> Sequence[Array]:
        """The fetches for arrays by alias.

        Raises ServingError for a wrong type, for strings of too many dimensions, for a caller that has gone
        before its turn, and for whatever TensorFlow says.
        """
        ordered = [arrays[tensor.alias] for tensor in self._inputs]
        if [array.dtype for array in ordered] != self._kinds:
            self._refuse(ordered)
        for tensor, array in zip(self._inputs, ordered, strict=True):
            if array.ndim > MAX_STRING_DIMENSIONS and array.dtype.hasobject:
                raise too_many_dimensions(f'The tensor "{tensor.alias}"', array.ndim, strings=True)
        call = self._call or self._prepared()
        with self._turns if self._is_slow else nullcontext():
            if not CALLER_WAITS.get()():
                raise caller_left()
            self._under_way.append(None)
            began = perf_counter()
            computed = process_time()
            try:
                outputs = call(ordered)
            finally:
                calls = len(self._under_way)
                self._under_way.pop()
            seconds = perf_counter() - began
            computed_seconds = (process_time() - computed) / calls
        self._observe(seconds)
        self._calls += 1
        # The quicker one of two calls in a row counts: any one may have waited for a core.
        if self._calls > 2:  # noqa: PLR2004
            self._seconds += (min(seconds, self._last_seconds) - self._seconds) * _RECENT
        elif self._calls > 1:
            self._seconds = seconds
        self._last_seconds = seconds
        self._is_slow = min(self._seconds, computed_seconds) > SLOW_SECONDS
        return outputs

    def _prepared(self) -> PreparedCall:
        """The call, made at the first run: TensorFlow optimises the graph for it, which takes seconds."""
        with self._preparing:
            if self._call is None:
                self._call = self._prepare()
            return self._call

    def _refuse(self, ordered: Sequence[Array]) -> None:
        for index, (tensor, array) in enumerate(zip(self._inputs, ordered, strict=True)):
            data_type = data_type_of(array)
            if data_type != tensor.data_type or numpy_type(tensor.data_type) is None:
                wanted = type_name(tensor.data_type)
                raise invalid(f"Expects arg[{index}] to be {wanted} but {type_name(data_type)} is provided")


class LoadedServable:
    """A model version that can be run, counted by its users so that none loses it in mid-request."""

    def __init__(
        self,
        name: str,
        version: int,
        signatures: Mapping[str, SignatureDef],
        backend: Backend,
        metrics: Metrics | None = None,
        *,
        check_methods: bool = False,
    ) -> None:
        self._metrics = metrics or Metrics()
        self.name = name
        self.version = version
        self.signatures = {
            key: ServableSignature(key, message, check_method=check_methods)
            for key, message in signatures.items()
        }
        self._backend = backend
        self._turns = threading.Semaphore(backend.at_once)
        self._runners: dict[tuple[str, tuple[str, ...]], Runner] = {}
        self._specs: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._empty = threading.Event()
        self._users = 0
        self._retired = False

    def enter(self) -> bool:
        """Count one more user; False once it is on its way out."""
        with self._lock:
            if self._retired:
                return False
            self._users += 1
            return True

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._retired and not self._users:
                self._empty.set()

    def retire(self) -> None:
        """Refuse new users, wait for those that are in, and free the memory."""
        with self._lock:
            self._retired = True
            if not self._users:
                self._empty.set()
        self._empty.wait()
        self._runners.clear()
        self._backend.close()

    def spec_bytes(self, signature: str) -> bytes:
        """The ModelSpec of an answer, serialized."""
        spec = self._specs.get(signature)
        if spec is None:
            spec = self._specs[signature] = model_spec(self.name, self.version, signature=signature)
        return spec

    def computed(self, signature: ServableSignature, aliases: tuple[str, ...]) -> tuple[str, ...]:
        """The outputs to compute for a request of these: all, once too many sets of outputs are kept."""
        if (signature.name, aliases) in self._runners or len(self._runners) < MAX_RUNNERS:
            return aliases
        return signature.aliases

    def runner(self, signature: ServableSignature, aliases: tuple[str, ...]) -> Runner:
        """The call for one signature and these of its outputs."""
        runner = self._runners.get((signature.name, aliases))
        if runner is None:
            fetches = [signature.outputs[alias].name for alias in aliases]
            inputs = tuple(signature.inputs.values())
            runner = self._new_runner((signature.name, aliases), inputs, fetches, "Predict")
        return runner

    def tensor_runner(self, feeds: Sequence[Tensor], fetches: tuple[str, ...], api: str) -> Runner:
        """The call from inputs to graph tensors by name; ``api`` is what it is counted under."""
        key = (f"{api} of {', '.join(feed.name for feed in feeds)}", fetches)
        return self._runners.get(key) or self._new_runner(key, feeds, fetches, api)

    def _new_runner(
        self, key: tuple[str, tuple[str, ...]], inputs: Sequence[Tensor], fetches: Sequence[str], api: str
    ) -> Runner:
        observe = partial(self._metrics.run, self.name, api)
        runner = self._runners[key] = Runner(self._backend, inputs, fetches, observe, self._turns)
        return runner


def type_name(data_type: int) -> str:
    """TensorFlow's short name of a type, as its error texts have it (``float``, ``int32``)."""
    return data_type_name(data_type).removeprefix("DT_").lower()
