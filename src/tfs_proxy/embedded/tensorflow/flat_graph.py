"""A model's graph without functions, and who uses what in it: what a rewrite of the graph reads."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tfs_proxy.embedded.tensorflow import runtime

_NO_VALUE = runtime.AttrValue()

_CARRIES = frozenset({"Enter", "Exit", "Identity", "Merge", "NextIteration", "Switch"})
_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape"})
"""Ops that hand a variable on, and those that only look at it."""

_PURE: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "AddV2": np.add,
    "Identity": np.asarray,
    "Mul": np.multiply,
    "Neg": np.negative,
    "RealDiv": np.divide,
    "Reshape": np.reshape,
    "Rsqrt": lambda value: 1 / np.sqrt(value),
    "Sqrt": np.sqrt,
    "Squeeze": np.squeeze,
    "Sub": np.subtract,
}
"""Ops that make one parameter of others, as numpy does them."""


def name_of(tensor: str) -> str:
    """The node of an input (``name``, ``name:1`` or ``^name``)."""
    return tensor.removeprefix("^").partition(":")[0]


def is_first_output(tensor: str) -> bool:
    """Whether an input is a node's first output, and no control edge."""
    return not tensor.startswith("^") and tensor.partition(":")[2] in {"", "0"}


def data_inputs(node: Any) -> list[str]:
    """A node's inputs without the control edges."""
    return [each for each in node.input if not each.startswith("^")]


def attribute(node: Any, name: str, kind: str) -> Any:
    """An attribute's value, or what TensorFlow takes where there is none; asking a map would add it."""
    return getattr(node.attr.get(name, _NO_VALUE), kind)


class FlatGraph:
    """The nodes of a GraphDef by name, and the users of each."""

    def __init__(self, nodes: Iterable[Any]) -> None:
        self.nodes = {node.name: node for node in nodes}
        self._users: defaultdict[str, list[Any]] = defaultdict(list)
        for node in self.nodes.values():
            for each in node.input:
                self._users[name_of(each)].append(node)
        self._parameters: dict[str, bool] = {}

    def origin(self, tensor: str) -> Any:
        """The node that a tensor comes from, seen through Identity."""
        node = self.nodes[name_of(tensor)]
        while node.op == "Identity":
            node = self.nodes[name_of(node.input[0])]
        return node

    def follower(self, node: Any) -> Any:
        """The only node that uses this one, where it takes its first output, else None."""
        users = self._users[node.name]
        if len(users) != 1:
            return None
        used = [each for each in users[0].input if name_of(each) == node.name]
        return users[0] if all(map(is_first_output, used)) else None

    def users(self, node: Any) -> list[Any]:
        """Who takes a node's outputs in the end, seen through Identity."""
        found: list[Any] = []
        waiting = [node.name]
        while waiting:
            name = waiting.pop()
            for user in self._users[name]:
                if user.op == "Identity":
                    waiting.append(user.name)
                elif any(name_of(each) == name for each in data_inputs(user)):
                    found.append(user)
        return found

    def is_parameter(self, tensor: str) -> bool:
        """Whether a tensor is made of nothing but variables and constants."""
        node = self.nodes[name_of(tensor)]
        if node.name not in self._parameters:
            inputs = data_inputs(node)
            if node.op == "ReadVariableOp":
                known = self.origin(inputs[0]).op == "VarHandleOp"
            else:
                known = node.op == "Const" or (node.op in _PURE and all(map(self.is_parameter, inputs)))
            self._parameters[node.name] = known
        return self._parameters[node.name]

    def variables_of(self, tensor: str) -> set[str]:
        """The variables that a parameter is made of, by the names of their handles."""
        node = self.nodes[name_of(tensor)]
        if node.op == "ReadVariableOp":
            return {self.origin(node.input[0]).name}
        return set().union(*map(self.variables_of, data_inputs(node)))

    def value(self, tensor: str, variables: Mapping[str, Any]) -> Any:
        """What a parameter comes to."""
        node = self.nodes[name_of(tensor)]
        inputs = data_inputs(node)
        if node.op == "ReadVariableOp":
            return variables[self.origin(inputs[0]).name]
        if node.op == "Const":
            return runtime.array_of(attribute(node, "value", "tensor"))
        values = [self.value(each, variables) for each in inputs]
        if node.op == "Squeeze":
            return np.squeeze(values[0], tuple(attribute(node, "squeeze_dims", "list").i) or None)
        return _PURE[node.op](*values)

    def only_reads(self, variables: Sequence[Any]) -> bool:
        """Whether nothing in the graph can change these variables."""
        seen = {node.name for node in variables}
        waiting = list(variables)
        while waiting:
            for user in self._users[waiting.pop().name]:
                if user.op not in _CARRIES | _READS | {"NoOp"}:
                    return False
                if user.op in _CARRIES and user.name not in seen:
                    seen.add(user.name)
                    waiting.append(user)
        return True
