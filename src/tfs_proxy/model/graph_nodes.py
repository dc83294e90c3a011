"""Nodes of a SavedModel's graph, and the ops in it, read without tensorflow.

Field numbers are those of tensorflow/core/framework/graph.proto, function.proto, node_def.proto and
attr_value.proto.
"""

import mmap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from tfs_proxy.wire.protobuf_reader import NOTHING, MalformedProtobuf, map_entry, text, views

BINARY_FILE = "saved_model.pb"
META_GRAPHS, GRAPH_DEF = 2, 2
NODES, LIBRARY = 1, 2
FUNCTION, FUNCTION_SIGNATURE, FUNCTION_NODES = 1, 1, 3
NAME, OP, INPUT, ATTRIBUTE = 1, 2, 3, 5
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


IDLE_OPS = frozenset({"Assert", "Const", "NoOp"})
ENDS_SHOWN = 8


def ends_of(path: Path) -> tuple[list[str], list[str]]:
    """Nodes of the GraphDef in a file that take requests, and those whose outputs no other node takes.

    Of the latter at most `ENDS_SHOWN`; none of either if the file holds no GraphDef.
    """
    try:
        nodes = nodes_of(mapped(path))
    except (MalformedProtobuf, OSError):
        nodes = {}
    inputs = [name for name, node in nodes.items() if node.op.startswith("Placeholder")]
    known = {source for node in nodes.values() for source in node.inputs}.union(inputs)
    outputs = [name for name, node in nodes.items() if name not in known and node.op not in IDLE_OPS]
    return inputs, outputs[:ENDS_SHOWN]


def fields(message: memoryview, wanted: int) -> Iterator[memoryview]:
    """Contents of all fields of this number; raises MalformedProtobuf."""
    return (content for number, content in views(message) if number == wanted)


def graphs_in(folder: Path) -> list[memoryview]:
    """Serialized GraphDefs of ``folder/saved_model.pb``; raises MalformedProtobuf and OSError."""
    metas = fields(mapped(folder / BINARY_FILE), META_GRAPHS)
    return [graph for meta in metas for graph in fields(meta, GRAPH_DEF)]


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
