"""Properties of a SavedModel's graph: its size, and whether it calls Python, which no model server can run.

``tf.py_function`` and ``tf.numpy_function`` write a number in the graph that stands for a function of the
process that saved it. Field numbers are those of tensorflow/core/framework/graph.proto, function.proto,
node_def.proto and attr_value.proto.
"""

import re
from collections.abc import Iterable, Iterator
from importlib.resources import files
from itertools import chain, islice
from pathlib import Path
from typing import Final

from msgspec import Struct

from tfs_proxy.model.graph_nodes import (
    BINARY_FILE,
    OP,
    PICTURE_OPS,
    CallGraph,
    GraphNode,
    all_nodes,
    fields,
    functions_in,
    graphs_in,
    ops_in,
)
from tfs_proxy.values.errors import DiscoveryError
from tfs_proxy.values.signature import Signature
from tfs_proxy.wire.protobuf_reader import NOTHING, MalformedProtobuf, numbers, text

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
    if not ops_in(folder, PYTHON_OPS):
        return False
    asked = list(_answering(folder, signatures, branches=False))
    return bool(asked) and all(any(node.op in PYTHON_OPS for node in nodes) for _, nodes in asked)


def _answering(
    folder: Path, signatures: Iterable[Signature], *, branches: bool
) -> Iterator[tuple[Signature, list[GraphNode]]]:
    """Each signature of the served graph with the nodes that its outputs reach. Raises DiscoveryError."""
    try:
        for graph in graphs_in(folder)[:1]:
            calls = CallGraph(graph)
            for signature in signatures:
                outputs = [spec.tensor for spec in signature.outputs.values()]
                yield signature, list(calls.reached(outputs, branches=branches))
    except MalformedProtobuf as error:
        raise DiscoveryError(f"The graph in {folder} is damaged: {error}.") from None


FUSED_BATCH_NORMALIZATION: Final = re.compile(r"FusedBatchNorm(V\d)?")
IS_TRAINING = "is_training"
VALUE_BOOL = 5
ASSIGNING_OPS: Final = re.compile(
    r"((Resource)?StridedSlice)?Assign(Add|Sub)?(VariableOp)?|(Resource)?(Sparse)?Apply\w+"
    r"|(Resource)?Scatter(Nd)?(Add|Div|Max|Min|Mul|Sub|Update)"
)
RANDOM_OPS: Final = re.compile(
    r"Random(?!Dataset|GammaGrad|Get|Index|ShuffleQueue)\w+|(Parameterized)?TruncatedNormal\w*|Multinomial"
    r"|SampleDistorted\w+|Stateful(Random|Standard|Truncated|Uniform)\w*|NonDeterministicInts|Rng\w+"
    r"|\w+CandidateSampler"
)
STATELESS: Final = "Stateless"
"""Beginning of the names of random ops that take their seed as an input."""


def unsteady_parts(folder: Path, signatures: Iterable[Signature]) -> dict[str, tuple[str, ...]]:
    """Parts of each signature by which a record's answer depends on other records and requests, as phrases.

    Branches of conditions count. A random op that is given its seed counts if a variable is assigned, as
    Keras' seeds are. Raises DiscoveryError if the graph is damaged.
    """
    parts = {}
    for signature, nodes in _answering(folder, signatures, branches=True):
        ops = sorted({node.op for node in nodes})
        assigning = [op for op in ops if ASSIGNING_OPS.fullmatch(op)]
        drawing = [op for op in ops if RANDOM_OPS.fullmatch(op.removeprefix(STATELESS) if assigning else op)]
        phrases = ["FusedBatchNorm in training mode"] if any(map(_trains, nodes)) else []
        phrases += [f"an assignment to a variable ({op})" for op in assigning[:1]]
        phrases += [f"a random op ({op})" for op in drawing[:1]]
        parts[signature.name] = tuple(phrases)
    return parts


def _trains(node: GraphNode) -> bool:
    """True for a batch normalization that computes means of its batch, which is the op's default."""
    if FUSED_BATCH_NORMALIZATION.fullmatch(node.op) is None:
        return False
    return bool(numbers(node.attribute(IS_TRAINING)).get(VALUE_BOOL, True))
