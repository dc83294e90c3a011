"""Batch normalisation folded into the convolutions in front of it, once, when a model has loaded.

A convolution's output scaled and shifted per channel is a convolution with scaled weights and
another bias. TensorFlow does that for constants only, and a loaded model's weights are variables:
here the variables themselves are scaled, which takes no more memory, and the signatures run on a copy
of their graph without the scaling. It is done only where no signature can write a variable, and a
variable is used by nothing else.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfs_proxy.embedded.core.servable import Array
from tfs_proxy.embedded.tensorflow import runtime
from tfs_proxy.embedded.tensorflow.flat_graph import FlatGraph, attribute, data_inputs, name_of
from tfs_proxy.protos import SignatureDef

log = logging.getLogger(__name__)

_CONVOLUTIONS = frozenset({"Conv2D", "DepthwiseConv2dNative"})
_NORMS = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
_SUMS = frozenset({"Add", "AddV2", "BiasAdd", "Sub"})
_FLOAT = 1
_MAX_RANK = 4
_DEFAULT_EPSILON = 1e-4


def worth_trying(op_types: frozenset[str]) -> bool:
    """Whether a model of these ops may have something to fold; most have not, and pay nothing."""
    return (
        "VarHandleOp" in op_types and bool(op_types & _CONVOLUTIONS) and bool(op_types & {*_NORMS, "Rsqrt"})
    )


def fold(session: Any, graph: Any, signatures: Iterable[SignatureDef]) -> Mapping[str, str]:
    """Fold what can be: the signatures' outputs by name to the tensors that give them now, or nothing.

    From then on only these tensors are right: the variables behind the others are scaled.
    Raises TensorFlow's error where a variable can't be written.
    """
    try:
        folding = _Folding(session, graph, list(signatures))
        chains = folding.chains()
        if not chains:
            return {}
        outputs = folding.rewritten(chains)
    except Exception as error:  # noqa: BLE001 - whatever it is, the model is served as it came
        log.info("Batch normalisation is not folded: %s", error)
        return {}
    folding.scale(chains)
    runtime.give_back()
    log.info("Folded batch normalisation into %d convolutions", len(chains))
    return outputs


@dataclass(slots=True)
class _Step:
    """A node that scales or shifts what it gets: by these tensors."""

    node: Any
    tensors: Sequence[str]


@dataclass(slots=True)
class _Chain:
    """A convolution, its variable, and the steps behind it; then what they come to, a value a channel."""

    convolution: Any
    variable: Any
    steps: Sequence[_Step]
    last: Any = None
    scale: Array = field(default_factory=lambda: np.ones(0))
    shift: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def shape(self) -> list[int]:
        """That of the weights."""
        return [dim.size for dim in attribute(self.variable, "shape", "shape").dim]

    @property
    def weights_scale(self) -> Array:
        """The scale in the form that multiplies the weights."""
        by_channel = self.scale.astype(np.float32)
        return by_channel if self.convolution.op == "Conv2D" else by_channel.reshape(self.shape[2:])

    def add_up(self, values: Mapping[str, Array]) -> bool:
        """Take the steps one after the other, as far as they are per channel; whether any scales."""
        channels = self.shape[3] if self.convolution.op == "Conv2D" else self.shape[2] * self.shape[3]
        self.scale, self.shift = np.ones(channels), np.zeros(channels)
        scales = False
        for step in self.steps:
            numbers = [_per_channel(values[name], channels) for name in step.tensors]
            if any(each is None for each in numbers):
                break
            scale, shift = _scale_and_shift(step.node, numbers)
            scales |= step.node.op not in _SUMS
            self.scale, self.shift = self.scale * scale, self.shift * scale + shift
            self.last = step.node
        finite = np.isfinite(self.weights_scale).all() and np.isfinite(self.shift.astype(np.float32)).all()
        return scales and bool(finite)


def _per_channel(value: Array, channels: int) -> Array | None:
    sizes = value.shape
    if (
        value.size not in {1, channels}
        or len(sizes) > _MAX_RANK
        or (value.size > 1 and sizes[-1] != channels)
    ):
        return None
    return np.broadcast_to(value.reshape(-1).astype(np.float64), [channels])


def _scale_and_shift(node: Any, numbers: Sequence[Any]) -> tuple[Any, Any]:
    if node.op in _NORMS:
        gamma, beta, mean, variance = numbers
        scale = gamma / np.sqrt(variance + _epsilon(node))
        return scale, beta - mean * scale
    if node.op in _SUMS:
        return 1.0, -numbers[0] if node.op == "Sub" else numbers[0]
    return numbers[0], 0.0


class _Folding:
    """One model's folding, between reading its graph and writing its variables."""

    def __init__(self, session: Any, graph: Any, signatures: Sequence[SignatureDef]) -> None:
        inputs = {info.name for each in signatures for info in each.inputs.values()}
        outputs = {info.name for each in signatures for info in each.outputs.values()}
        outputs -= {operation.name for operation in graph.get_operations() if not operation.outputs}
        if not all(":" in name for name in inputs | outputs):
            raise ValueError("a signature has something else than a plain tensor")
        self._session = session
        self._graph = graph
        self._fetches = sorted(outputs)
        self._fetched = set(map(name_of, outputs))
        self._inlined = runtime.inlined(graph, self._fetches)
        self._flat = FlatGraph(self._inlined.node)
        self._shared = _sources(self._inlined, graph)
        self._variables = [node for node in self._inlined.node if node.op == "VarHandleOp"]
        self._fits = self._can_fold(set(map(name_of, inputs)))

    def _can_fold(self, fed: set[str]) -> bool:
        """Only variables that are read are known, no library could use one, and what is fed stays."""
        placeholders = {node.name for node in self._inlined.node if node.op == "Placeholder"}
        names = [_variable(node) for node in self._variables]
        return (
            not self._inlined.library.function
            and fed & self._flat.nodes.keys() <= placeholders & self._shared
            and {node.name for node in self._variables} <= self._shared
            and len(set(names)) == len(names)
            and self._flat.only_reads(self._variables)
        )

    def chains(self) -> list[_Chain]:
        """What can be folded, with its numbers."""
        found = [chain for chain in map(self._chain, self._inlined.node) if chain] if self._fits else []
        if not found:
            return []
        values = self._values(name for chain in found for step in chain.steps for name in step.tensors)
        return self._alone([chain for chain in found if chain.add_up(values)])

    def _chain(self, node: Any) -> _Chain | None:
        """The chain that begins at a node, if it is a convolution of a variable of known shape."""
        if node.op not in _CONVOLUTIONS or attribute(node, "T", "type") != _FLOAT or not _channels_last(node):
            return None
        read = self._flat.origin(node.input[1])
        if read.op != "ReadVariableOp":
            return None
        chain = _Chain(node, self._flat.origin(read.input[0]), self._steps(node))
        fits = chain.variable.op == "VarHandleOp" and len(chain.shape) == _MAX_RANK and min(chain.shape) > 0
        return chain if fits and chain.steps else None

    def _steps(self, node: Any) -> list[_Step]:
        steps = []
        while node.name not in self._fetched and (user := self._flat.follower(node)):
            if user.op != "Identity":
                tensors = self._parameters(user, node)
                if not tensors:
                    break
                steps.append(_Step(user, tensors))
            node = user
        return steps

    def _parameters(self, user: Any, node: Any) -> list[str]:
        """The tensors by which a step scales or shifts a node's output; none where it is no such step."""
        inputs = data_inputs(user)
        if user.op in _NORMS:
            usable = not _trains(user) and user.name not in self._fetched
        else:
            usable = user.op in {*_SUMS, "Mul"}
        others = [each for each in inputs if name_of(each) != node.name]
        either = user.op in {"Add", "AddV2", "Mul"}
        placed = len(others) == len(inputs) - 1 and (either or name_of(inputs[0]) == node.name)
        usable = usable and placed and _channels_last(user)
        return others if usable and all(map(self._flat.is_parameter, others)) else []

    def _values(self, tensors: Iterable[str]) -> dict[str, Array]:
        names = sorted(set(tensors))
        variables = sorted(set().union(*map(self._flat.variables_of, names)))
        with self._graph.as_default():
            reads = [runtime.read(self._handle(name)).name for name in variables]
        read = dict(zip(variables, self._once(fetches=reads), strict=True))
        return {name: self._flat.value(name, read) for name in names}

    def _handle(self, variable: str) -> Any:
        return self._graph.get_tensor_by_name(f"{variable}:0")

    def _alone(self, chains: Iterable[_Chain]) -> list[_Chain]:
        """The chains whose variable has no other use than to be scaled like this."""
        by_variable: defaultdict[str, list[_Chain]] = defaultdict(list)
        for chain in chains:
            by_variable[chain.variable.name].append(chain)
        return [each for group in by_variable.values() if self._agree(group) for each in group]

    def _agree(self, group: Sequence[_Chain]) -> bool:
        reads = self._flat.users(group[0].variable)
        users = [user for read in reads for user in self._flat.users(read)]
        alike = all(np.array_equal(group[0].scale, chain.scale) for chain in group)
        only = {user.name for user in users} == {chain.convolution.name for chain in group}
        return alike and only and all(read.op == "ReadVariableOp" for read in reads)

    def rewritten(self, chains: Sequence[_Chain]) -> dict[str, str]:
        """Import the graph with the chains folded; the names of the signatures' outputs there."""
        for chain in chains:
            _shift_only(chain, self._inlined)
        fed = [name for name in self._fetches if name_of(name) in self._shared]
        wanted = [name for name in self._fetches if name not in fed]
        part = runtime.between(self._inlined, self._shared, wanted)
        inputs = {name_of(each) for node in part.node for each in node.input}
        mapped = {f"{name}:0": self._graph.get_tensor_by_name(f"{name}:0") for name in self._shared & inputs}
        with self._graph.as_default():
            tensors = runtime.import_graph_def(part, mapped, return_elements=wanted, name="folded")
        return {name: name for name in fed} | {
            name: tensor.name for name, tensor in zip(wanted, tensors, strict=True)
        }

    def scale(self, chains: Iterable[_Chain]) -> None:
        """Scale the variables, each once, and one after the other: the old values of one are in memory."""
        scales = {chain.variable.name: chain.weights_scale for chain in chains}
        written: list[Any] = []
        with self._graph.as_default():
            for name, factors in scales.items():
                with self._graph.control_dependencies(written[-1:]):
                    written.append(runtime.scale(self._handle(name), factors))
        self._once(targets=[each.name for each in written])

    def _once(self, fetches: Sequence[str] = (), targets: Sequence[str] = ()) -> Any:
        """Run something that the session need not remember: it keeps what ``run`` has prepared."""
        options = runtime.CallableOptions(fetch=fetches, target=targets)
        return self._session._make_callable_from_options(options)()  # noqa: SLF001


def _variable(node: Any) -> tuple[bytes, bytes]:
    return attribute(node, "container", "s"), attribute(node, "shared_name", "s") or node.name.encode()


def _epsilon(norm: Any) -> float:
    return float(attribute(norm, "epsilon", "f")) if "epsilon" in norm.attr else _DEFAULT_EPSILON


def _trains(norm: Any) -> bool:
    return attribute(norm, "is_training", "b") or "is_training" not in norm.attr


def _channels_last(node: Any) -> bool:
    return attribute(node, "data_format", "s") in {b"NHWC", b""}


def _sources(inlined: Any, graph: Any) -> set[str]:
    """The nodes of the loaded graph that the copy goes on using: what is fed, variables, tables."""
    originals = {operation.name: operation.type for operation in graph.get_operations()}
    return {
        node.name
        for node in inlined.node
        if not node.input and node.op not in {"Const", "NoOp"} and originals.get(node.name) == node.op
    }


def _shift_only(chain: _Chain, graph_def: Any) -> None:
    """Make the last step of a chain add its shift to what comes from the convolution."""
    numbers = chain.shift.astype(np.float32)
    bias = graph_def.node.add(name=f"{chain.last.name}/folded", op="Const")
    bias.attr["dtype"].type = _FLOAT
    bias.attr["value"].tensor.dtype = _FLOAT
    bias.attr["value"].tensor.tensor_shape.dim.add(size=len(numbers))
    bias.attr["value"].tensor.tensor_content = numbers.tobytes()
    control = [each for each in chain.last.input if each.startswith("^")]
    chain.last.op = "BiasAdd"
    del chain.last.input[:]
    chain.last.input.extend([chain.convolution.name, bias.name, *control])
    chain.last.attr.clear()
    chain.last.attr["T"].type = _FLOAT
