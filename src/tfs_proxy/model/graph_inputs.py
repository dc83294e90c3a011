"""Contents of a graph's string inputs: `openapi` makes examples from them that models take.

Signatures say DT_STRING alike for text, for pictures and for serialized tf.Examples. Of parsed tf.Examples
only dense features count. Field numbers are those of tensorflow/core/framework/graph.proto, function.proto,
node_def.proto and attr_value.proto.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct, field

from tfs_proxy.model.graph_nodes import (
    FUNCTION_NODES,
    PICTURE_OPS,
    GraphNode,
    functions_in,
    graphs_in,
    nodes_of,
    ops_in,
)
from tfs_proxy.values.errors import DiscoveryError
from tfs_proxy.values.signature import Signature, TensorSpec
from tfs_proxy.wire import protobuf_reader
from tfs_proxy.wire.data_types import data_type_name, shape_of

Features = Mapping[str, TensorSpec]
"""Type and shape of one record's dense features, by name."""

VALUE_LIST = 1
VALUE_NUMBER = 3
VALUE_TENSOR = 8
LIST_TEXT = 2
LIST_TYPE = 6
LIST_SHAPE = 7
TENSOR_STRINGS = 8
CONSTANT = "Const"
RESIZING_OPS = (
    *("ResizeArea", "ResizeBicubic", "ResizeBilinear", "ResizeNearestNeighbor"),
    *("CropAndResize", "ScaleAndTranslate"),
)
BASE64_OP = "DecodeBase64"
PARSING_OPS = ("ParseExample", "ParseExampleV2", "ParseSingleExample")
DENSE_KEYS_OF_V2 = 3
FIRST_KEY_OF_V1 = 2


class ParsingNode(Struct, frozen=True):
    """Node that parses tf.Examples: the name of its input node, and the features."""

    serialized: str
    features: Features


def parsing_nodes(graph_def: memoryview) -> Iterator[ParsingNode]:
    """Find the parsing nodes of a serialized GraphDef and its functions; raises MalformedProtobuf."""
    scopes = (function for _, function in functions_in(graph_def))
    # The names of nodes mean nothing outside of their graph or function.
    for nodes in (nodes_of(graph_def), *(nodes_of(scope, FUNCTION_NODES) for scope in scopes)):
        for node in nodes.values():
            if node.op in PARSING_OPS:
                names = _dense_names(node, nodes)
                if names is not None and node.inputs:
                    yield ParsingNode(node.inputs[0], _features(node, names))


def _dense_names(node: GraphNode, nodes: Mapping[str, GraphNode]) -> Sequence[str] | None:
    """Names of dense features; None if they are not constants."""
    if node.op == "ParseSingleExample":
        return [protobuf_reader.text(content) for content in _listed(node, "dense_keys", LIST_TEXT)]
    if node.op == "ParseExampleV2":
        name = next(iter(node.inputs[DENSE_KEYS_OF_V2:]), "")
        return _constant(nodes.get(name))
    first = FIRST_KEY_OF_V1 + _count(node, "Nsparse")
    names = [_constant(nodes.get(name)) for name in node.inputs[first : first + _count(node, "Ndense")]]
    return None if None in names else [name for found in names if found for name in found]


def _count(node: GraphNode, key: str) -> int:
    return protobuf_reader.numbers(node.attribute(key)).get(VALUE_NUMBER, 0)


def _constant(node: GraphNode | None) -> Sequence[str] | None:
    """Strings of a constant node; None if it is something else."""
    if node is None or node.op != CONSTANT:
        return None
    tensor = dict(protobuf_reader.views(node.attribute("value"))).get(VALUE_TENSOR, protobuf_reader.NOTHING)
    return [
        protobuf_reader.text(content)
        for number, content in protobuf_reader.views(tensor)
        if number == TENSOR_STRINGS
    ]


def _features(node: GraphNode, names: Sequence[str]) -> Features:
    shapes = _listed(node, "dense_shapes", LIST_SHAPE)
    types = _types(node)
    if not len(names) == len(types) == len(shapes):
        raise protobuf_reader.MalformedProtobuf(
            f"a {node.op} has {len(names)} names, {len(types)} types, {len(shapes)} shapes"
        )
    return {
        name: TensorSpec(name, data_type_name(number), shape_of(shape))
        for name, number, shape in zip(names, types, shapes, strict=True)
    }


def _listed(node: GraphNode, key: str, kind: int) -> list[memoryview]:
    values = dict(protobuf_reader.views(node.attribute(key))).get(VALUE_LIST, protobuf_reader.NOTHING)
    return [content for number, content in protobuf_reader.views(values) if number == kind]


def _types(node: GraphNode) -> list[int]:
    """Numbers of types, packed or one by one."""
    values = dict(protobuf_reader.views(node.attribute("Tdense"))).get(VALUE_LIST, protobuf_reader.NOTHING)
    found: list[int] = []
    for number, _, content in protobuf_reader.read_fields(values):
        at = 0
        while number == LIST_TYPE and at < len(content):
            value, at = protobuf_reader.varint_at(content, at)
            found.append(value)
    return found


class GraphInputs(Struct, frozen=True):
    """Use that a graph makes of strings: nothing that is known, unless said otherwise.

    ``resizes`` says that pictures of other sizes than the model's are taken, ``from_base64`` that they come
    as web-safe base64.
    """

    decodes_pictures: bool = False
    resizes: bool = False
    from_base64: bool = False
    parsing: tuple[ParsingNode, ...] = field(default=())

    def features_of(self, signature: Signature) -> Features | None:
        """Features that a signature's only input is parsed into; None if that is not certain."""
        fed = {spec.tensor.split(":", maxsplit=1)[0] for spec in signature.inputs.values()}
        own = [node.features for node in self.parsing if node.serialized in fed]
        candidates = own or [node.features for node in self.parsing]
        if len(fed) != 1 or not candidates:
            return None
        return candidates[0] if all(each == candidates[0] for each in candidates) else None


@lru_cache(maxsize=64)
def known_inputs(folder: str | None) -> GraphInputs:
    """Read the graph of a SavedModel, once; nothing is known of an unknown folder."""
    return GraphInputs() if folder is None else read_graph_inputs(Path(folder))


def read_graph_inputs(folder: Path) -> GraphInputs:
    """Read the SavedModel in ``folder``; raises DiscoveryError if it is damaged.

    A graph is searched for the names of the ops first, and its nodes are read only if some parse
    tf.Examples.
    """
    found = ops_in(folder, (*PICTURE_OPS, *RESIZING_OPS, *PARSING_OPS, BASE64_OP))
    nodes: tuple[ParsingNode, ...] = ()
    if found & set(PARSING_OPS):
        try:
            nodes = tuple(node for graph in graphs_in(folder) for node in parsing_nodes(graph))
        except protobuf_reader.MalformedProtobuf as error:
            raise DiscoveryError(f"The graph in {folder} is damaged: {error}.") from None
    return GraphInputs(
        decodes_pictures=bool(found & set(PICTURE_OPS)),
        resizes=bool(found & set(RESIZING_OPS)),
        from_base64=BASE64_OP in found,
        parsing=nodes,
    )
