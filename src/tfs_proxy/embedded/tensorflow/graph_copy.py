"""Calls through a copy of a model's graph whose inputs are computed: what feeding can't do.

A copy shares the session's variables. Tensors with more ranks than numpy has go in as messages that
TensorFlow itself parses, and come out flat, with their shape beside them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfs_proxy.embedded.core.errors import invalid, tensorflow_errors
from tfs_proxy.embedded.core.servable import Array
from tfs_proxy.embedded.core.tall import MAX_RANK, MAX_TAKEN_RANK, TallArray, shape_of
from tfs_proxy.embedded.tensorflow import runtime
from tfs_proxy.protos.tensors import to_pieces


class TallCall:
    """One signature's call for tensors of any rank."""

    def __init__(self, session: Any, graph: Any, feeds: Sequence[str], fetches: Sequence[str]) -> None:
        operations = runtime.array_operations()
        copied = runtime.subgraph(graph, feeds, fetches)
        self._inputs = tuple(feeds)
        with tensorflow_errors(), graph.as_default():
            kinds = runtime.kinds_of(graph, feeds)
            messages = [operations.placeholder(runtime.as_dtype("string"), shape=[]) for _ in feeds]
            inputs = [runtime.parsed(*pair) for pair in zip(messages, kinds, strict=True)]
            given = dict(zip(map(runtime.tensor_name, feeds), inputs, strict=True))
            outputs = runtime.import_part(copied, given, fetches, "tall")
            out_shapes = [operations.shape(each, out_type=runtime.as_dtype("int64")) for each in outputs]
            minus_one = runtime.constant([-1], "int64")
            out_flat = [operations.reshape(each, minus_one) for each in outputs]
        options = runtime.CallableOptions()
        options.feed.extend(each.name for each in messages)
        options.fetch.extend(each.name for each in (*out_flat, *out_shapes))
        with tensorflow_errors():
            self._run = session._make_callable_from_options(options)  # noqa: SLF001

    def __call__(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """Raises ServingError where a tensor has more ranks than is safe."""
        given = [shape_of(array) for array in arrays]
        for name, shape in zip(self._inputs, given, strict=True):
            _check(name, len(shape))
        messages = [to_pieces(*pair) for pair in zip(map(np.asarray, arrays), given, strict=True)]
        with tensorflow_errors():
            results = self._run(*(np.array(b"".join(pieces), object) for pieces in messages))
        half = len(results) // 2
        return [_shaped(*pair) for pair in zip(results[:half], results[half:], strict=True)]


def _check(name: str, given: int) -> None:
    if given > MAX_TAKEN_RANK:
        raise invalid(f"input {name}: a tensor has {given} dimensions, the most is {MAX_TAKEN_RANK}")


def _shaped(values: Array, shape: Array) -> Array:
    sizes = shape.tolist()
    return values.reshape(sizes) if len(sizes) <= MAX_RANK else TallArray(values, sizes)
