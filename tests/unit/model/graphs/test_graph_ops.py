"""What the answers of SavedModels need: Python in every one, or what makes one differ from another."""

from pathlib import Path

import pytest

from support import graphs
from tfs_proxy.model.graph_ops import calls_python, unsteady_parts
from tfs_proxy.values.errors import DiscoveryError
from tfs_proxy.values.signature import Signature, TensorSpec
from tfs_proxy.wire.protobuf_writer import field

PREDICT = "tensorflow/serving/predict"
CALL, OTHER = (
    Signature(name, PREDICT, {}, {"y": TensorSpec("y", "DT_FLOAT", None, f"{name}:0")})
    for name in ("call", "other")
)


def node(name: str, op: str, *inputs: str, function: str = "", functions: tuple[str, ...] = ()) -> bytes:
    """A NodeDef with the functions that it calls."""
    called = {"f": field(10, field(1, function.encode()))} if function else {}
    if functions:
        called["branches"] = field(1, b"".join(field(9, field(1, each.encode())) for each in functions))
    return graphs.node(name, op, *inputs, **called)


def library(result: str = "", effect: str = "", **functions: bytes) -> bytes:
    """A FunctionDefLibrary of functions of one node; all have the same ends, if any."""
    ends = b"".join(
        field(number, field(1, b"end") + field(2, end.encode()))
        for number, end in ((4, result), (6, effect))
        if end
    )
    defined = (field(1, field(1, name.encode())) + field(3, body) + ends for name, body in functions.items())
    return field(2, b"".join(field(1, each) for each in defined))


def saved(folder: Path, *nodes: bytes, functions: bytes = b"", other: bytes = b"") -> Path:
    """A SavedModel of these nodes in ``folder``, before the MetaGraphDef ``other``."""
    graph = b"".join(field(1, each) for each in nodes) + functions
    (folder / "saved_model.pb").write_bytes(field(2, field(2, graph)) + other)
    return folder


PYTHON = node("python", "EagerPyFunc")


@pytest.mark.parametrize("op", ["EagerPyFunc", "PyFunc", "PyFuncStateless"])
def test_python_in_the_functions_of_every_answer(tmp_path: Path, op: str) -> None:
    functions = library(
        outer=node("loop", "While", function="body"), body=node("python", op), listed=node("p", op)
    )
    call = node("call", "StatefulPartitionedCall", "x", function="outer")
    other = node("other", "Batch", "^within")
    within = node("within", "Remote", functions=("listed",))

    assert calls_python(saved(tmp_path, call, other, within, functions=functions), [CALL, OTHER])
    assert calls_python(saved(tmp_path, node("call", op)), [CALL])


def test_python_that_an_answer_can_do_without(tmp_path: Path) -> None:
    """One of two signatures, a branch of a condition, a function that calls itself, and the saver's part."""
    functions = library(python=PYTHON, plain=node("again", "PartitionedCall", function="plain"))
    answers = node("call", "PartitionedCall", function="plain")
    asks_python = node("other", "PartitionedCall", function="python")
    branches = node("call", "Case", functions=("python", "plain"))

    assert not calls_python(saved(tmp_path, answers, asks_python, functions=functions), [CALL, OTHER])
    assert not calls_python(saved(tmp_path, branches, functions=functions), [CALL])
    assert not calls_python(saved(tmp_path, answers, node("save", "PyFunc"), functions=functions), [CALL])
    assert not calls_python(saved(tmp_path, node("call", "Identity")), [CALL])
    assert not calls_python(saved(tmp_path, PYTHON), [])


def test_a_graph_that_breaks_off(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(field(2, field(2, field(1, PYTHON) + b"\x0a\x7f")))

    with pytest.raises(DiscoveryError, match="is damaged"):
        calls_python(tmp_path, [CALL])


def switched(op: str, on: int) -> bytes:
    """A node ``call`` whose ``is_training`` is written out."""
    return graphs.node("call", op, is_training=bytes((5 << 3, on)))


ASSIGNS = "an assignment to a variable (AssignVariableOp)"


@pytest.mark.parametrize(
    ("op", "part"),
    [
        ("FusedBatchNormV3", "FusedBatchNorm in training mode"),
        ("AssignVariableOp", ASSIGNS),
        ("ResourceScatterNdAdd", "an assignment to a variable (ResourceScatterNdAdd)"),
        ("RandomUniformInt", "a random op (RandomUniformInt)"),
        ("RngReadAndSkip", "a random op (RngReadAndSkip)"),
    ],
)
def test_what_makes_answers_differ(tmp_path: Path, op: str, part: str) -> None:
    """It counts in the graph, as a result or a control output of a function, and in a branch; not beside."""
    call, beside = node("call", "StatefulPartitionedCall", function="f"), node("beside", op)
    branching, inner = node("call", "If", functions=("f",)), node("inner", op)
    for nodes, functions in (
        ([node("call", "Identity", "^beside"), beside], b""),
        ([call], library(result="inner:y:0", f=inner)),
        ([call], library(effect="inner", f=inner)),
        ([branching], library(effect="inner", f=inner)),
    ):
        assert unsteady_parts(saved(tmp_path, *nodes, functions=functions), [CALL]) == {"call": (part,)}

    unused = library(result="other", f=inner)
    assert unsteady_parts(saved(tmp_path, call, beside, functions=unused), [CALL]) == {"call": ()}


@pytest.mark.parametrize(
    ("nodes", "parts"),
    [
        ([switched("FusedBatchNormV3", 0)], ()),
        ([switched("FusedBatchNorm", 1)], ("FusedBatchNorm in training mode",)),
        ([node("call", "FusedBatchNormGradV3")], ()),
        ([node("call", "TensorScatterUpdate")], ()),
        ([node("call", "StatelessRandomUniformV2")], ()),
        (
            [node("call", "StatelessRandomUniformV2", "^seed"), node("seed", "AssignVariableOp")],
            (ASSIGNS, "a random op (StatelessRandomUniformV2)"),
        ),
    ],
)
def test_what_depends_on_more_than_the_name_of_an_op(
    tmp_path: Path, nodes: list[bytes], parts: tuple[str, ...]
) -> None:
    assert unsteady_parts(saved(tmp_path, *nodes), [CALL]) == {"call": parts}


def test_a_graph_that_is_not_served(tmp_path: Path) -> None:
    """TensorFlow 1 saved one for training beside the one to serve, with the same names."""
    steady = field(2, field(1, node("call", "Identity")))
    served = field(2, field(1, field(4, b"serve")) + steady)

    assert unsteady_parts(saved(tmp_path, node("call", "RandomUniform"), other=served), [CALL]) == {
        "call": ()
    }
