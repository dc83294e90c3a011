"""Refuses tensors whose shape would end the process, in front of a loaded model.

oneDNN's kernels, which TensorFlow uses by default on x86, end the process for a tensor of the wrong rank,
while TensorFlow's own kernels answer an error, and XLA's code for convolutions divides by the number of
channels without looking. One malformed request must not do that.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from tfs_proxy.embedded.core.servable import Array, Backend, PreparedCall
from tfs_proxy.embedded.errors import invalid, shape_text
from tfs_proxy.wire.protos import SignatureDef, TensorInfo

StaticSizes = Callable[[str], Sequence[int] | None]
"""Gives the sizes that a graph has for a tensor by name, -1 for an unknown one; None for an unknown rank."""

CRASHING_OPS = frozenset(
    {
        "AvgPool",
        "AvgPool3D",
        "Conv2D",
        "Conv3D",
        "DepthwiseConv2dNative",
        "FusedBatchNorm",
        "FusedBatchNormV2",
        "FusedBatchNormV3",
        "LRN",
        "MaxPool",
        "MaxPool3D",
        "QuantizedConv2D",
    }
)
"""Ops with a kernel that takes its input's layout, and so its rank, for granted."""

_XLA = "_XlaMustCompile"

_IMAGE_RANKS = (3, 4, 5)
"""The ranks of what convolutions take: in one, two and three dimensions."""


def op_types(graph_def: Any) -> frozenset[str]:
    functions = (function.node_def for function in graph_def.library.function)
    return frozenset(node.op for nodes in (graph_def.node, *functions) for node in nodes)


def ops_outside(graph_def: Any) -> frozenset[str]:
    """The types of a GraphDef's ops that are not functions of its own."""
    return op_types(graph_def) - {function.signature.name for function in graph_def.library.function}


def compiles(graph_def: Any) -> bool:
    """True if a function or a call of one in a GraphDef is to be compiled by XLA."""
    functions = graph_def.library.function
    nodes = chain(graph_def.node, *(function.node_def for function in functions))
    return any(_XLA in holder.attr and holder.attr[_XLA].b for holder in chain(functions, nodes))


class ShapeGuard:
    """A backend whose calls take only the ranks that the signatures declare, and no 0 for another size.

    Nor a 0 for an unknown last size, which may be the channels, if XLA compiles. An input whose rank its
    signature does not tell takes the rank that the graph has for it, and any if that is unknown as well.
    """

    def __init__(
        self,
        backend: Backend,
        signatures: Mapping[str, SignatureDef],
        static_sizes: StaticSizes,
        *,
        compiled: bool,
    ) -> None:
        self._backend = backend
        self.signatures = signatures
        self.waits = backend.waits
        self.at_once = backend.at_once
        self._sizes = dict(_sizes(signatures.values(), static_sizes))
        self._compiled = compiled

    def prepare(self, feeds: Sequence[str], fetches: Sequence[str]) -> PreparedCall:
        """The backend's call, behind the check."""
        run = self._backend.prepare(feeds, fetches)
        wanted = [self._sizes.get(name) for name in feeds]

        def call(arrays: Sequence[Array]) -> Sequence[Array]:
            for name, sizes, array in zip(feeds, wanted, arrays, strict=True):
                if sizes is None:
                    continue
                if array.ndim != len(sizes):
                    raise invalid(f"input {name} must be {len(sizes)}-dimensional: {shape_text(array.shape)}")
                if not array.size and _lacks(array, sizes, compiled=self._compiled):
                    raise invalid(
                        f"input {name} must be of shape {shape_text(sizes)}: {shape_text(array.shape)}"
                    )
            return run(arrays)

        return call

    def close(self) -> None:
        self._backend.close()


def _sizes(
    signatures: Iterable[SignatureDef], static_sizes: StaticSizes
) -> Iterable[tuple[str, Sequence[int]]]:
    for signature in signatures:
        for info in signature.inputs.values():
            declared = _declared(info)
            sizes = static_sizes(info.name) if declared is None else declared
            if sizes is not None:
                yield info.name, sizes


def _declared(info: TensorInfo) -> list[int] | None:
    """The sizes that a signature tells; an absent shape is an unknown rank, not a scalar's."""
    if not info.HasField("tensor_shape") or info.tensor_shape.unknown_rank:
        return None
    return [dim.size for dim in info.tensor_shape.dim]


def _lacks(array: Array, sizes: Sequence[int], *, compiled: bool) -> bool:
    """True if an array has a size of 0 that the signature declares as another, or that may be its channels.

    XLA's code divides by both.
    """
    if compiled and array.ndim in _IMAGE_RANKS and not array.shape[-1]:
        return True
    return any(size > 0 and not actual for size, actual in zip(sizes, array.shape, strict=True))
