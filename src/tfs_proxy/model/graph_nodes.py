"""Nodes of a SavedModel's graph, and the ops in it, read without tensorflow.

Field numbers are those of tensorflow/core/protobuf/meta_graph.proto and of
tensorflow/core/framework/graph.proto, function.proto, node_def.proto and attr_value.proto.
"""

import mmap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from tfs_proxy.wire.protobuf_reader import NOTHING, map_entry, text, views

BINARY_FILE = "saved_model.pb"
SERVE_TAG = "serve"
META_GRAPHS = 2
META_INFO = 1
GRAPH_DEF = 2
INFO_TAGS = 4
NODES = 1
LIBRARY = 2
FUNCTION = 1
FUNCTION_SIGNATURE = 1
FUNCTION_NODES = 3
FUNCTION_RESULTS = 4
FUNCTION_EFFECTS = 6
NAME = 1
OP = 2
INPUT = 3
ATTRIBUTE = 5
VALUE_LIST = 1
VALUE_FUNCTION = 10
LIST_FUNCTION = 9
BRANCHING_OPS = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
PICTURE_OPS = ("DecodeJpeg", "DecodePng", "DecodeImage", "DecodeBmp", "DecodeAndCropJpeg")


def mapped(path: Path) -> memoryview:
    """Map the file into memory, which ends with the last view of it; an empty one can't be."""
    with path.open("rb") as file:
        size = path.stat().st_size
        return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)) if size else NOTHING


def ops_in(folder: Path, ops: Iterable[str]) -> frozenset[str]:
    """Find those of ``ops`` that the graph below ``folder`` seems to have, its functions included."""
    path = folder / BINARY_FILE
    if not path.is_file() or not path.stat().st_size:
        return frozenset()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        # A NodeDef's second field is the name of its op.
        return frozenset(op for op in ops if content.find(bytes((0x12, len(op))) + op.encode()) >= 0)


def fields(message: memoryview, wanted: int) -> Iterator[memoryview]:
    """Contents of all fields of this number; raises MalformedProtobuf."""
    return (content for number, content in views(message) if number == wanted)


def graphs_in(folder: Path) -> list[memoryview]:
    """Serialized GraphDefs of ``folder/saved_model.pb`` that are served; all of them if none is tagged so.

    Raises MalformedProtobuf and OSError.
    """
    metas = list(fields(mapped(folder / BINARY_FILE), META_GRAPHS))
    served = [meta for meta in metas if tags_of(meta) == [SERVE_TAG]]
    return [graph for meta in served or metas for graph in fields(meta, GRAPH_DEF)]


def tags_of(meta_graph: memoryview) -> list[str]:
    """Tags of a serialized MetaGraphDef, sorted."""
    infos = fields(meta_graph, META_INFO)
    return sorted(text(tag) for info in infos for tag in fields(info, INFO_TAGS))


def functions_in(graph: memoryview) -> Iterator[tuple[str, memoryview]]:
    """Functions of a GraphDef, by name."""
    for library in fields(graph, LIBRARY):
        for function in fields(library, FUNCTION):
            signature = next(fields(function, FUNCTION_SIGNATURE), NOTHING)
            yield text(next(fields(signature, NAME), NOTHING)), function


def all_nodes(graph: memoryview) -> Iterator[memoryview]:
    """Serialized NodeDefs of a GraphDef, and of its functions."""
    yield from fields(graph, NODES)
    for _, function in functions_in(graph):
        yield from fields(function, FUNCTION_NODES)


class GraphNode(Struct, frozen=True):
    """One NodeDef: its op, and the names of the nodes that it gets its inputs from."""

    op: str
    inputs: tuple[str, ...]
    message: memoryview

    def attributes(self) -> Iterator[tuple[str, memoryview]]:
        """Serialized AttrValues by name."""
        return map(map_entry, fields(self.message, ATTRIBUTE))

    def attribute(self, name: str) -> memoryview:
        """Serialized AttrValue; empty if there is none."""
        return next((value for key, value in self.attributes() if key == name), NOTHING)


def nodes_of(message: memoryview, field: int = NODES) -> dict[str, GraphNode]:
    """Nodes of a GraphDef by name, or of a function, whose ``field`` is `FUNCTION_NODES`."""
    nodes = {}
    for content in fields(message, field):
        name = op = ""
        inputs: list[str] = []
        for number, value in views(content):
            if number == NAME:
                name = text(value)
            elif number == OP:
                op = text(value)
            elif number == INPUT:
                inputs.append(node_of(text(value)))
        nodes[name] = GraphNode(op, tuple(inputs), content)
    return nodes


def node_of(tensor: str) -> str:
    """Node of a tensor's name (``NODE:0``) or of a control input (``^NODE``)."""
    return tensor.removeprefix("^").split(":", maxsplit=1)[0]


def ancestors(nodes: Mapping[str, GraphNode], tensors: Iterable[str]) -> dict[str, GraphNode]:
    """Nodes that ``tensors`` are computed from, by name."""
    found: dict[str, GraphNode] = {}
    ahead = [node_of(tensor) for tensor in tensors]
    while ahead:
        name = ahead.pop()
        if name in nodes and name not in found:
            found[name] = nodes[name]
            ahead.extend(nodes[name].inputs)
    return found


class CallGraph:
    """A GraphDef and its functions, which are read as they are called."""

    def __init__(self, graph: memoryview) -> None:
        self._nodes = nodes_of(graph)
        self._functions = dict(functions_in(graph))

    def reached(self, tensors: Iterable[str], *, branches: bool) -> Iterator[GraphNode]:
        """Nodes that ``tensors`` of the graph need, with those of the functions that are called for them.

        Without ``branches`` a condition calls none of its branches. Raises MalformedProtobuf.
        """
        ahead = list(ancestors(self._nodes, tensors).values())
        seen = set[str]()
        while ahead:
            node = ahead.pop()
            yield node
            if branches or node.op not in BRANCHING_OPS:
                called = _called(node) & self._functions.keys() - seen
                ahead.extend(each for name in called for each in _needed(self._functions[name]))
                seen |= called


def _called(node: GraphNode) -> set[str]:
    """Names that a node may call functions by: its op's, and those of the bodies of calls and loops."""
    called = {node.op}
    for _, value in node.attributes():
        listed = (each for values in fields(value, VALUE_LIST) for each in fields(values, LIST_FUNCTION))
        called |= {
            text(next(fields(function, NAME), NOTHING))
            for function in (*fields(value, VALUE_FUNCTION), *listed)
        }
    return called


def _needed(function: memoryview) -> Iterable[GraphNode]:
    """Nodes that a function's results and control outputs need; all of them if it has neither."""
    nodes = nodes_of(function, FUNCTION_NODES)
    ends = [*fields(function, FUNCTION_RESULTS), *fields(function, FUNCTION_EFFECTS)]
    return (ancestors(nodes, (text(map_entry(end)[1]) for end in ends)) if ends else nodes).values()
