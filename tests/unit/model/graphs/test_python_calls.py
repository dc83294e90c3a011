"""SavedModels that call Python in every answer are told from those that need not."""

from pathlib import Path

import pytest

from tfs_proxy.model.graph_ops import calls_python
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
    body = field(1, name.encode()) + field(2, op.encode())
    body += b"".join(field(3, each.encode()) for each in inputs)
    if function:
        body += field(5, field(1, b"f") + field(2, field(10, field(1, function.encode()))))
    if functions:
        listed = b"".join(field(9, field(1, each.encode())) for each in functions)
        body += field(5, field(1, b"branches") + field(2, field(1, listed)))
    return body


def library(**functions: bytes) -> bytes:
    """A FunctionDefLibrary of functions of one node."""
    defined = (field(1, field(1, name.encode())) + field(3, body) for name, body in functions.items())
    return field(2, b"".join(field(1, each) for each in defined))


def saved(folder: Path, *nodes: bytes, functions: bytes = b"") -> Path:
    """A SavedModel of these nodes in ``folder``."""
    graph = b"".join(field(1, each) for each in nodes) + functions
    (folder / "saved_model.pb").write_bytes(field(2, field(2, graph)))
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
