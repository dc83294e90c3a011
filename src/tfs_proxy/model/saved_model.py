"""Signatures and tags of a SavedModel folder, without tensorflow.

Field numbers are those of tensorflow/core/protobuf/saved_model.proto, meta_graph.proto, saver.proto
and tensorflow/core/framework/graph.proto, node_def.proto, tensor_shape.proto.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from tfs_proxy.model import graph_nodes
from tfs_proxy.model.discover import FROZEN_GRAPH
from tfs_proxy.values.errors import DiscoveryError
from tfs_proxy.values.signature import Signature, TensorSpec
from tfs_proxy.wire.data_types import data_type_name, shape_of
from tfs_proxy.wire.protobuf_reader import NOTHING, MalformedProtobuf, map_entry, numbers, text, views

SIGNATURES = 5
OBJECT_GRAPH = 7
INFO_OPS = 2
LISTED_OP = 1
LISTED_NAME = 1
SIGNATURE_INPUTS = 1
SIGNATURE_OUTPUTS = 2
SIGNATURE_METHOD = 3
TENSOR_NAME = 1
TENSOR_DTYPE = 2
TENSOR_SHAPE = 3
TENSOR_SPARSE = 4
INIT_SIGNATURES = frozenset({"__saved_model_init_op", "__saved_model_train_op"})


class SavedModelSummary(Struct, frozen=True):
    """Facts of a saved_model.pb, or of one graph in it.

    ``tags`` are the tag sets in it; ``signatures`` those under the one tag ``serve``, which is the one that
    TF Serving loads. ``lost_variables`` names variables that the signatures read and that TF Serving will not
    fill, so that every predict fails with "Could not find variable". ``ops`` are the types that the first
    graph says that it uses.
    """

    tags: tuple[tuple[str, ...], ...]
    signatures: Mapping[str, Signature] = field(default_factory=dict)
    lost_variables: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()


def read_saved_model(folder: Path) -> SavedModelSummary | None:
    """Read ``folder/saved_model.pb``; None if there is only the text form, which is not read here.

    Steps over weights and functions, so size hardly matters; raises DiscoveryError if it can't be read.
    """
    path = folder / graph_nodes.BINARY_FILE
    if not path.is_file():
        return None
    try:
        parts = list(views(graph_nodes.mapped(path)))
        graphs = [part for number, part in parts if number == graph_nodes.META_GRAPHS]
        if not graphs and any(number == graph_nodes.NODES for number, _ in parts):
            raise DiscoveryError(f"{path} is {FROZEN_GRAPH}.")
        read = [_of_graph(graph) for graph in graphs]
    except MalformedProtobuf as error:
        raise DiscoveryError(f"{path} is damaged: {error}.") from None
    except OSError as error:
        raise DiscoveryError(f"{path} cannot be read: {error}.") from None
    if not read:
        raise DiscoveryError(f"{path} is damaged: it holds no graph.")
    served = next(
        (graph for graph in read if graph.tags == ((graph_nodes.SERVE_TAG,),)), SavedModelSummary(())
    )
    return replace(served, tags=tuple(tags for graph in read for tags in graph.tags), ops=read[0].ops)


def _of_graph(message: memoryview) -> SavedModelSummary:
    """Read one MetaGraphDef."""
    info = NOTHING
    graph = NOTHING
    from_objects = False
    signatures: dict[str, Signature] = {}
    for number, content in views(message):
        if number == graph_nodes.META_INFO:
            info = content
        elif number == graph_nodes.GRAPH_DEF:
            graph = content
        elif number == SIGNATURES:
            signature = read_signature(*map_entry(content))
            signatures[signature.name] = signature
        elif number == OBJECT_GRAPH:
            from_objects = True
    for name in INIT_SIGNATURES:
        signatures.pop(name, None)
    outputs = [spec.tensor for signature in signatures.values() for spec in signature.outputs.values()]
    # Only TensorFlow 2 writes an object graph, and only its saver can lose variables.
    lost = lost_variables(graph, outputs) if from_objects else ()
    listed = (part for number, part in views(dict(views(info)).get(INFO_OPS, NOTHING)) if number == LISTED_OP)
    ops = tuple(text(dict(views(op)).get(LISTED_NAME, NOTHING)) for op in listed)
    return SavedModelSummary((tuple(graph_nodes.tags_of(message)),), signatures, lost, ops)


def read_signature(name: str, message: memoryview) -> Signature:
    """Read a SignatureDef."""
    tensors: dict[int, dict[str, TensorSpec]] = {SIGNATURE_INPUTS: {}, SIGNATURE_OUTPUTS: {}}
    method = ""
    for number, content in views(message):
        if number in tensors:
            alias, info = map_entry(content)
            parts = dict(views(info))
            sparse = dict(views(parts.get(TENSOR_SPARSE, NOTHING)))
            dtype = numbers(info).get(TENSOR_DTYPE, 0)
            tensors[number][alias] = TensorSpec(
                name=alias,
                dtype=data_type_name(dtype),
                shape=shape_of(parts.get(TENSOR_SHAPE)),
                tensor=text(parts.get(TENSOR_NAME, sparse.get(1, NOTHING))),
            )
        elif number == SIGNATURE_METHOD:
            method = text(content)
    inputs, outputs = (
        dict(sorted(tensors[number].items())) for number in (SIGNATURE_INPUTS, SIGNATURE_OUTPUTS)
    )
    return Signature(name, method, inputs, outputs)


VARIABLE_OP = "VarHandleOp"
SHARED_NAME = 2
ASKING_OPS = frozenset(
    {"DestroyResourceOp", "Identity", "ReadVariableOp", "VarIsInitializedOp", "VariableShape"}
)


def lost_variables(graph_def: memoryview, outputs: Iterable[str]) -> tuple[str, ...]:
    """Name the variables that the tensors ``outputs`` need and that nothing fills, sorted.

    ``graph_def`` is a serialized GraphDef, of which constants and functions are stepped over. Raises
    Malformed if it is not one.
    """
    nodes = graph_nodes.nodes_of(graph_def)
    answering = graph_nodes.ancestors(nodes, outputs)
    names = {
        name: text(next(graph_nodes.fields(node.attribute("shared_name"), SHARED_NAME), NOTHING)) or name
        for name, node in nodes.items()
        if node.op == VARIABLE_OP
    }
    needed = set[str]()
    filled = set[str]()
    for name, node in nodes.items():
        variables = {names[source] for source in node.inputs if source in names}
        if name in answering:
            needed |= variables
        elif node.op not in ASKING_OPS:
            filled |= variables
    return tuple(sorted(needed - filled))
