"""Properties of a SavedModel's graph: its size, and whether it calls Python, which no model server can run.

``tf.py_function`` and ``tf.numpy_function`` write a number in the graph that stands for a function of the
process that saved it. Field numbers are those of tensorflow/core/framework/graph.proto, function.proto,
node_def.proto and attr_value.proto.
"""

from collections.abc import Iterable, Iterator
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct

from tfs_proxy.model.saved_model import BINARY_FILE, PICTURE_OPS, graphs_in, ops_in
from tfs_proxy.values.errors import DiscoveryError
from tfs_proxy.values.signature import Signature
from tfs_proxy.wire.protobuf_reader import NOTHING, MalformedProtobuf, map_entry, text, views

NODE, LIBRARY = 1, 2
FUNCTION, FUNCTION_SIGNATURE, FUNCTION_NODE = 1, 1, 3
HEAVY_OPS: Final = (*("Conv2D", "Conv3D", "DepthwiseConv2dNative", "FusedConv2D"), *PICTURE_OPS)
"""Ops that take long with few weights."""


class GraphSize(Struct, frozen=True):
    """Size of a graph: ``nodes`` with those of all functions, ``weight_bytes`` of variables and constants."""

    nodes: int
    weight_bytes: int
    heavy: bool


def graph_size(folder: Path, most_nodes: int) -> GraphSize | None:
    """Measure the SavedModel in ``folder``; None if there is only the text form, which is not read here.

    Nodes are counted up to ``most_nodes`` and one more. Raises DiscoveryError if it is damaged.
    """
    path = folder / BINARY_FILE
    if not path.is_file():
        return None
    try:
        nodes = sum(1 for graph in graphs_in(folder) for _ in islice(_nodes(graph), most_nodes + 1))
    except MalformedProtobuf as error:
        raise DiscoveryError(f"The graph in {path} is damaged: {error}.") from None
    variables = sum(file.stat().st_size for file in (folder / "variables").glob("variables.data-*"))
    return GraphSize(nodes, variables + path.stat().st_size, bool(ops_in(folder, HEAVY_OPS)))


def _nodes(graph_def: memoryview) -> Iterator[memoryview]:
    for number, content in views(graph_def):
        if number == NODE:
            yield content
        elif number == LIBRARY:
            functions = (function for kind, function in views(content) if kind == FUNCTION)
            for function in functions:
                yield from (node for kind, node in views(function) if kind == FUNCTION_NODE)


PYTHON_OPS = frozenset({"EagerPyFunc", "PyFunc", "PyFuncStateless"})
BRANCHING_OPS = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
NODE_NAME, NODE_OP, NODE_INPUT, NODE_ATTRIBUTE = 1, 2, 3, 5
VALUE_LIST, VALUE_FUNCTION, LIST_FUNCTION = 1, 10, 9


DECISION_FORESTS = "SimpleML"
"""Beginning of the names of TensorFlow Decision Forests' ops, which model servers have, too."""

RESTORING_OPS = frozenset({"RestoreV2", "VarHandleOp"})


def misses_variables(folder: Path) -> bool:
    """True if the SavedModel in ``folder`` restores variables from files that are not there."""
    there = (folder / "variables" / "variables.index").is_file()
    return not there and ops_in(folder, RESTORING_OPS) == RESTORING_OPS


def unknown_ops(ops: Iterable[str]) -> list[str]:
    """Find those of ``ops`` that no model server has built in; ``make known-ops`` writes the list."""
    known = set((files("tfs_proxy.model") / "known_ops.txt").read_text().split())
    return [op for op in ops if op not in known and not op.startswith(DECISION_FORESTS)]


class _GraphStep(Struct, frozen=True):
    op: str
    inputs: tuple[str, ...]
    functions: tuple[str, ...]


def calls_python(folder: Path, signatures: Iterable[Signature]) -> bool:
    """True if each of ``signatures`` of the SavedModel in ``folder`` calls Python for every answer.

    A call in only one branch of a condition does not count. The graph is searched for the names of the
    ops first, and read only if it has one. Raises DiscoveryError if it is damaged.
    """
    outputs = [[spec.tensor for spec in signature.outputs.values()] for signature in signatures]
    if not outputs or not ops_in(folder, PYTHON_OPS):
        return False
    try:
        return any(_all_call(graph, outputs) for graph in graphs_in(folder))
    except MalformedProtobuf as error:
        raise DiscoveryError(f"The graph in {folder} is damaged: {error}.") from None


def _all_call(graph: memoryview, outputs: Iterable[list[str]]) -> bool:
    nodes = dict(_node(content) for content in _fields(graph, NODE))
    functions = dict(
        _function(content) for library in _fields(graph, LIBRARY) for content in _fields(library, FUNCTION)
    )
    return all(_reaches_python(_ancestors(nodes, names), functions) for names in outputs)


def _reaches_python(nodes: Iterable[_GraphStep], functions: dict[str, list[_GraphStep]]) -> bool:
    ahead, seen = list(nodes), set[str]()
    while ahead:
        node = ahead.pop()
        if node.op in PYTHON_OPS:
            return True
        called = set() if node.op in BRANCHING_OPS else {node.op, *node.functions} - seen
        seen |= called
        ahead.extend(each for name in called for each in functions.get(name, ()))
    return False


def _ancestors(nodes: dict[str, _GraphStep], tensors: Iterable[str]) -> Iterator[_GraphStep]:
    """Find the nodes that ``tensors`` are computed from."""
    ahead, seen = [_node_of(tensor) for tensor in tensors], set[str]()
    while ahead:
        name = ahead.pop()
        if name in nodes and name not in seen:
            seen.add(name)
            ahead.extend(nodes[name].inputs)
            yield nodes[name]


def _function(message: memoryview) -> tuple[str, list[_GraphStep]]:
    parts = dict(views(message))
    name = text(dict(views(parts.get(FUNCTION_SIGNATURE, NOTHING))).get(NODE_NAME, NOTHING))
    return name, [_node(content)[1] for content in _fields(message, FUNCTION_NODE)]


def _node(message: memoryview) -> tuple[str, _GraphStep]:
    parts = dict(views(message))
    inputs = tuple(_node_of(text(content)) for content in _fields(message, NODE_INPUT))
    attributes = (map_entry(content)[1] for content in _fields(message, NODE_ATTRIBUTE))
    functions = tuple(name for value in attributes for name in _functions_named(value))
    return text(parts.get(NODE_NAME, NOTHING)), _GraphStep(
        text(parts.get(NODE_OP, NOTHING)), inputs, functions
    )


def _functions_named(value: memoryview) -> Iterator[str]:
    """Functions in an AttrValue: the bodies of calls and loops."""
    listed = (function for each in _fields(value, VALUE_LIST) for function in _fields(each, LIST_FUNCTION))
    for function in (*_fields(value, VALUE_FUNCTION), *listed):
        yield text(dict(views(function)).get(NODE_NAME, NOTHING))


def _fields(message: memoryview, wanted: int) -> Iterator[memoryview]:
    return (content for number, content in views(message) if number == wanted)


def _node_of(tensor: str) -> str:
    """Node of a tensor's name (``NODE:0``) or of a control input (``^NODE``)."""
    return tensor.removeprefix("^").split(":", maxsplit=1)[0]
