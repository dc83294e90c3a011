"""A SavedModel folder -> its signatures and tags, without tensorflow; `check` reports them.

Field numbers are those of tensorflow/core/protobuf/saved_model.proto, meta_graph.proto, saver.proto
and tensorflow/core/framework/graph.proto, node_def.proto.
"""

import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from tfs_proxy.archive.discover import SAVED_MODEL_FILES
from tfs_proxy.archive.graph import lost_variables
from tfs_proxy.archive.skim import Malformed, length_fields
from tfs_proxy.errors import DiscoveryError
from tfs_proxy.protos import DATA_TYPE_NAMES, MetaGraphDef, SignatureDef, TensorInfo
from tfs_proxy.signature import Signature, TensorSpec

BINARY_FILE = SAVED_MODEL_FILES[0]
SERVE_TAG = "serve"
META_GRAPHS = 2
META_INFO, GRAPH_DEF, SIGNATURES, OBJECT_GRAPH = 1, 2, 5, 7
INIT_SIGNATURES = frozenset({"__saved_model_init_op", "__saved_model_train_op"})


@dataclass(frozen=True, slots=True)
class SavedModelSummary:
    """What a saved_model.pb says of itself.

    ``tags`` are the tag sets in it; ``signatures`` those under the one tag ``serve``, which is what TF
    Serving loads. ``lost_variables`` names variables that the signatures read and that TF Serving
    will not fill, so that every predict fails with "Could not find variable".
    """

    tags: tuple[tuple[str, ...], ...]
    tensorflow_version: str
    signatures: Mapping[str, Signature]
    lost_variables: tuple[str, ...]


def read_saved_model(folder: Path) -> SavedModelSummary | None:
    """Read ``folder/saved_model.pb``; None where there is only the text form, which is not read here.

    Weights and functions in the file are stepped over, so that its size hardly matters. Raises
    DiscoveryError where the file can't be read or is damaged.
    """
    path = folder / BINARY_FILE
    if not path.is_file():
        return None
    try:
        graphs = [part for number, part in length_fields(_mapped(path)) if number == META_GRAPHS]
        return _summary([_MetaGraph.of(graph) for graph in graphs])
    except (Malformed, DecodeError, UnicodeDecodeError) as error:
        raise DiscoveryError(f"{path} is damaged: {error}.") from None
    except (OSError, ValueError) as error:
        raise DiscoveryError(f"{path} can't be read: {error}.") from None


@dataclass(frozen=True, slots=True)
class _MetaGraph:
    """What is wanted of one MetaGraphDef."""

    tags: tuple[str, ...]
    tensorflow_version: str
    signatures: Mapping[str, Signature]
    lost: tuple[str, ...]

    @classmethod
    def of(cls, message: memoryview) -> "_MetaGraph":
        info = MetaGraphDef.MetaInfoDef()
        graph, from_objects = memoryview(b""), False
        signatures: dict[str, Signature] = {}
        for number, content in length_fields(message):
            if number == META_INFO:
                info = MetaGraphDef.MetaInfoDef.FromString(bytes(content))
            elif number == GRAPH_DEF:
                graph = content
            elif number == SIGNATURES:
                signature = _signature(content)
                signatures[signature.name] = signature
            elif number == OBJECT_GRAPH:
                from_objects = True
        for name in INIT_SIGNATURES:
            signatures.pop(name, None)
        outputs = [spec.name for signature in signatures.values() for spec in signature.outputs.values()]
        # Only TensorFlow 2 writes an object graph, and only its saver can lose variables.
        lost = lost_variables(graph, outputs) if from_objects else ()
        return cls(tuple(sorted(info.tags)), info.tensorflow_version, signatures, lost)


def _summary(graphs: list[_MetaGraph]) -> SavedModelSummary:
    if not graphs:
        raise Malformed("it holds no graph")
    served = next((graph for graph in graphs if graph.tags == (SERVE_TAG,)), None)
    return SavedModelSummary(
        tags=tuple(graph.tags for graph in graphs),
        tensorflow_version=graphs[0].tensorflow_version,
        signatures=served.signatures if served else {},
        lost_variables=served.lost if served else (),
    )


def _mapped(path: Path) -> memoryview:
    """The file as memory; it is let go with the last view of it."""
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _signature(entry: memoryview) -> Signature:
    """One entry of the map from names to SignatureDefs."""
    parts = dict(length_fields(entry))
    message = SignatureDef.FromString(bytes(parts.get(2, b"")))
    return Signature(
        name=bytes(parts.get(1, b"")).decode(),
        method=message.method_name,
        inputs={alias: _tensor_spec(info) for alias, info in sorted(message.inputs.items())},
        outputs={alias: _tensor_spec(info) for alias, info in sorted(message.outputs.items())},
    )


def _tensor_spec(info: TensorInfo) -> TensorSpec:
    shape = info.tensor_shape
    return TensorSpec(
        name=info.name or info.coo_sparse.values_tensor_name,
        dtype=DATA_TYPE_NAMES.get(info.dtype, f"DT_{info.dtype}"),
        shape=None if shape.unknown_rank else tuple(None if dim.size < 0 else dim.size for dim in shape.dim),
    )
