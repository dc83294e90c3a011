"""Refuses tensors whose number of dimensions would end the process, in front of a loaded model.

oneDNN's kernels, which TensorFlow uses by default on x86, check a tensor's rank by ending the process
where TensorFlow's own kernels answer an error. One malformed request must not do that.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tfs_proxy.embedded.errors import invalid
from tfs_proxy.embedded.servable import Array, Backend, Call
from tfs_proxy.embedded.tall import TallArray, shape_of
from tfs_proxy.protos import SignatureDef

ENDING_OPS = frozenset(
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


def op_types(graph_def: Any) -> frozenset[str]:
    """The types of all ops in a GraphDef, those in its functions too."""
    functions = (function.node_def for function in graph_def.library.function)
    return frozenset(node.op for nodes in (graph_def.node, *functions) for node in nodes)


def ops_outside(graph_def: Any) -> frozenset[str]:
    """The types of a GraphDef's ops that are no functions of its own."""
    return op_types(graph_def) - {function.signature.name for function in graph_def.library.function}


class RankGuard:
    """A backend whose calls take only the ranks that the signatures declare."""

    def __init__(self, backend: Backend, signatures: Mapping[str, SignatureDef]) -> None:
        self._backend = backend
        self.signatures = signatures
        self.waits = backend.waits
        self._ranks = dict(_ranks(signatures.values()))

    def prepare(self, feeds: Sequence[str], fetches: Sequence[str]) -> Call:
        """The backend's call, behind the check."""
        run = self._backend.prepare(feeds, fetches)
        wanted = [self._ranks.get(name) for name in feeds]

        def call(arrays: Sequence[Array]) -> Sequence[Array]:
            for name, rank, array in zip(feeds, wanted, arrays, strict=True):
                if rank is not None and (type(array) is TallArray or array.ndim != rank):
                    raise invalid(f"input {name} must be {rank}-dimensional: [{_shape(array)}]")
            return run(arrays)

        return call

    def close(self) -> None:
        """Close the backend."""
        self._backend.close()


def _ranks(signatures: Iterable[SignatureDef]) -> Iterable[tuple[str, int]]:
    for signature in signatures:
        for info in signature.inputs.values():
            if not info.tensor_shape.unknown_rank:
                yield info.name, len(info.tensor_shape.dim)


def _shape(array: Array) -> str:
    return ",".join(str(size) for size in shape_of(array))
