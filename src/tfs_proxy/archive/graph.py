"""Variables that a SavedModel's signatures read but its restoring does not fill, for `saved_model`.

Keras 3 hides its variables from TensorFlow's checkpoint when a model is saved with
``tf.saved_model.save`` (itself, or hung on a ``tf.Module``): the checkpoint then holds copies called
Variable, Variable_1, …, and the handles that the signatures read are filled by Python only. TF
Serving has no Python, so it loads such a model and then fails every predict with "Could not find
variable". In the graph it shows: those handles go into the signatures' function calls, but neither
into an assignment nor into the call that restores the checkpoint.
"""

from collections.abc import Iterable

from msgspec import Struct

from tfs_proxy.wire.protobuf_reader import NOTHING, map_entry, text, views

NODE = 1
NAME, OP, INPUT, ATTRIBUTE = 1, 2, 3, 5
VARIABLE_OP = "VarHandleOp"
ASKING_OPS = frozenset(
    {"DestroyResourceOp", "Identity", "ReadVariableOp", "VarIsInitializedOp", "VariableShape"}
)


class _GraphNode(Struct, frozen=True):
    op: str
    inputs: tuple[str, ...]
    shared_name: str


def lost_variables(graph_def: memoryview, outputs: Iterable[str]) -> tuple[str, ...]:
    """Name the variables that the tensors ``outputs`` need and that nothing fills, sorted.

    ``graph_def`` is a serialized GraphDef, of which constants and functions are stepped over. Raises
    Malformed if it is not one.
    """
    nodes = dict(_node(content) for number, content in views(graph_def) if number == NODE)
    answering = _with_ancestors(nodes, (_node_of(name) for name in outputs))
    needed, filled = set[str](), set[str]()
    for name, node in nodes.items():
        variables = {
            nodes[source].shared_name or source for source in node.inputs if _is_variable(nodes, source)
        }
        if name in answering:
            needed |= variables
        elif node.op not in ASKING_OPS:
            filled |= variables
    return tuple(sorted(needed - filled))


def _is_variable(nodes: dict[str, _GraphNode], name: str) -> bool:
    return name in nodes and nodes[name].op == VARIABLE_OP


def _with_ancestors(nodes: dict[str, _GraphNode], names: Iterable[str]) -> set[str]:
    ancestors: set[str] = set()
    ahead = list(names)
    while ahead:
        name = ahead.pop()
        if name in nodes and name not in ancestors:
            ancestors.add(name)
            ahead.extend(nodes[name].inputs)
    return ancestors


def _node(message: memoryview) -> tuple[str, _GraphNode]:
    name = op = shared_name = ""
    inputs: list[str] = []
    for number, content in views(message):
        if number == NAME:
            name = text(content)
        elif number == OP:
            op = text(content)
        elif number == INPUT:
            inputs.append(_node_of(text(content)))
        elif number == ATTRIBUTE and op == VARIABLE_OP:
            key, value = map_entry(content)
            shared_name = text(dict(views(value)).get(2, NOTHING)) if key == "shared_name" else shared_name
    return name, _GraphNode(op, tuple(inputs), shared_name)


def _node_of(tensor: str) -> str:
    """The node of a tensor's name (``NODE:0``) or of a control input (``^NODE``)."""
    return tensor.removeprefix("^").split(":", maxsplit=1)[0]
