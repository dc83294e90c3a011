"""Properties of a SavedModel's graph: its size, and whether it calls Python, which no model server can run.

``tf.py_function`` and ``tf.numpy_function`` write a number in the graph that stands for a function of the
process that saved it. Field numbers are those of tensorflow/core/framework/graph.proto, function.proto,
node_def.proto and attr_value.proto.
"""

from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from itertools import chain, islice
from pathlib import Path
from typing import Final

from msgspec import Struct

from tfs_proxy.model.graph_nodes import (
    BINARY_FILE,
    FUNCTION_NODES,
    NAME,
    OP,
    PICTURE_OPS,
    GraphNode,
    all_nodes,
    ancestors,
    fields,
    functions_in,
    graphs_in,
    nodes_of,
    ops_in,
)
from tfs_proxy.values.errors import DiscoveryError
from tfs_proxy.values.signature import Signature
from tfs_proxy.wire.protobuf_reader import NOTHING, MalformedProtobuf, text

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
        parts = chain.from_iterable(map(all_nodes, graphs_in(folder)))
        nodes = sum(1 for _ in islice(parts, most_nodes + 1))
    except MalformedProtobuf as error:
        raise DiscoveryError(f"The graph in {path} is damaged: {error}.") from None
    variables = sum(file.stat().st_size for file in (folder / "variables").glob("variables.data-*"))
    return GraphSize(nodes, variables + path.stat().st_size, bool(ops_in(folder, HEAVY_OPS)))


PYTHON_OPS = frozenset({"EagerPyFunc", "PyFunc", "PyFuncStateless"})
BRANCHING_OPS = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
VALUE_LIST, VALUE_FUNCTION, LIST_FUNCTION = 1, 10, 9


DECISION_FORESTS = "SimpleML"
"""Beginning of the names of TensorFlow Decision Forests' ops, which only the official model server has."""

NO_SERVER = "neither tensorflow_model_server nor the embedded server"
RESTORING_OPS = frozenset({"RestoreV2", "VarHandleOp"})


def misses_variables(folder: Path) -> bool:
    """True if the SavedModel in ``folder`` restores variables from files that are not there."""
    there = (folder / "variables" / "variables.index").is_file()
    return not there and ops_in(folder, RESTORING_OPS) == RESTORING_OPS


def unknown_ops(ops: Iterable[str]) -> list[str]:
    """Find those of ``ops`` that no model server has built in; ``make known-ops`` writes the list."""
    known = set((files("tfs_proxy.model") / "known_ops.txt").read_text().split())
    return [op for op in ops if op not in known and not op.startswith(DECISION_FORESTS)]


def rare_ops(folder: Path) -> Iterator[str]:
    """Say of ops of the SavedModel in ``folder`` that not each model server has which one has them.

    Raises DiscoveryError if it is damaged.
    """
    if not (folder / BINARY_FILE).is_file():
        return
    try:
        graphs = graphs_in(folder)
        functions = {name for graph in graphs for name, _ in functions_in(graph)}
        nodes = chain.from_iterable(map(all_nodes, graphs))
        ops = sorted({text(next(fields(node, OP), NOTHING)) for node in nodes} - functions)
    except MalformedProtobuf as error:
        raise DiscoveryError(f"The graph in {folder} is damaged: {error}.") from None
    for op in unknown_ops(ops)[:1]:
        yield f"uses the op {op}, which {NO_SERVER} has: only one built with the library that registers it."
    for op in [op for op in ops if op.startswith(DECISION_FORESTS)][:1]:
        yield f"uses Decision Forests' op {op}: tensorflow_model_server has it, the embedded server has not."


def calls_python(folder: Path, signatures: Iterable[Signature]) -> bool:
    """True if each of ``signatures`` of the SavedModel in ``folder`` calls Python for every answer.

    A call in only one branch of a condition does not count. The graph is searched for the names of the
    ops first, and read only if it has one. Raises DiscoveryError if it is damaged.
    """
    outputs = [[spec.tensor for spec in signature.outputs.values()] for signature in signatures]
    if not outputs or not ops_in(folder, PYTHON_OPS):
        return False
    try:
        for graph in graphs_in(folder):
            nodes = nodes_of(graph)
            defined = functions_in(graph)
            functions = {name: list(nodes_of(each, FUNCTION_NODES).values()) for name, each in defined}
            if all(_reaches_python(ancestors(nodes, names).values(), functions) for names in outputs):
                return True
    except MalformedProtobuf as error:
        raise DiscoveryError(f"The graph in {folder} is damaged: {error}.") from None
    return False


def _reaches_python(nodes: Iterable[GraphNode], functions: Mapping[str, list[GraphNode]]) -> bool:
    ahead, seen = list(nodes), set[str]()
    while ahead:
        node = ahead.pop()
        if node.op in PYTHON_OPS:
            return True
        if node.op in BRANCHING_OPS:
            continue
        called = {node.op}  # and the bodies of calls and loops
        for _, value in node.attributes():
            listed = (each for values in fields(value, VALUE_LIST) for each in fields(values, LIST_FUNCTION))
            called |= {
                text(next(fields(function, NAME), NOTHING))
                for function in (*fields(value, VALUE_FUNCTION), *listed)
            }
        ahead.extend(each for name in called - seen for each in functions.get(name, ()))
        seen |= called
    return False
