"""Reading saved_model.pb without tensorflow: signatures, tags, damage, and variables that get lost."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import graphs
from tfs_proxy.model.saved_model import SavedModelSummary, read_saved_model
from tfs_proxy.values.errors import DiscoveryError
from tfs_proxy.values.signature import Signature, TensorSpec
from tfs_proxy.wire.protobuf_writer import field
from tfs_proxy.wire.protos import MetaGraphDef, SavedModel, SignatureDef, TensorInfo, TensorShapeProto

DT_FLOAT, DT_STRING = 1, 7
OBJECT_GRAPH = field(7, b"\x0a\x00")


def tensor(name: str, dtype: int, *shape: int) -> TensorInfo:
    dims = [TensorShapeProto.Dim(size=size) for size in shape]
    return TensorInfo(name=name, dtype=dtype, tensor_shape=TensorShapeProto(dim=dims))  # type: ignore[arg-type]


def meta_graph(*tags: str, graph: bytes = b"") -> MetaGraphDef:
    unranked = TensorInfo(name="r:0", dtype=DT_STRING, tensor_shape=TensorShapeProto(unknown_rank=True))  # type: ignore[arg-type]
    predict = SignatureDef(
        inputs={"x": tensor("x:0", DT_FLOAT, -1, 3)},
        outputs={"y": tensor("call:0", DT_FLOAT, -1), "raw": unranked},
        method_name="tensorflow/serving/predict",
    )
    info = MetaGraphDef.MetaInfoDef(tags=tags, tensorflow_version="2.20.0")
    signatures = {"serving_default": predict, "__saved_model_init_op": SignatureDef()}
    return MetaGraphDef(meta_info_def=info, graph_def=graph, signature_def=signatures)


def read(folder: Path, contents: bytes) -> SavedModelSummary:
    (folder / "saved_model.pb").write_bytes(contents)
    summary = read_saved_model(folder)
    assert summary is not None
    return summary


def test_signatures_under_the_serve_tag(tmp_path: Path) -> None:
    """Only what TF Serving loads is told; what is not for clients is left out."""
    saved = SavedModel(meta_graphs=[meta_graph("serve", "gpu"), meta_graph("serve")])
    summary = read(tmp_path, saved.SerializeToString())
    assert summary.tags == (("gpu", "serve"), ("serve",))
    assert summary.signatures == {
        "serving_default": Signature(
            name="serving_default",
            method="tensorflow/serving/predict",
            inputs={"x": TensorSpec("x", "DT_FLOAT", (None, 3), "x:0")},
            outputs={
                "raw": TensorSpec("raw", "DT_STRING", None, "r:0"),
                "y": TensorSpec("y", "DT_FLOAT", (None,), "call:0"),
            },
        )
    }


@pytest.mark.parametrize(
    "contents",
    [b"", b"no protobuf", b"\x12\xff\x01", b"\x08\x01", b"\x12\x02\x2a\x05", b"\x08" + b"\xff" * 20],
)
def test_a_damaged_file_is_named(tmp_path: Path, contents: bytes) -> None:
    """One sentence with the path, whatever is wrong."""
    with pytest.raises(DiscoveryError, match=r"saved_model\.pb (is damaged|cannot be read)"):
        read(tmp_path, contents)


@given(place=st.integers(0, 10_000), byte=st.integers(0, 255), length=st.integers(0, 10_000))
def test_damage_never_raises_anything_else(
    tmp_path_factory: pytest.TempPathFactory, place: int, byte: int, length: int
) -> None:
    """A changed or cut file is read, or is a DiscoveryError."""
    graph = node("v", "VarHandleOp") + node("call", "PartitionedCall", "v")
    contents = bytearray(saved_bytes(graph)[: length or None])
    contents[place % len(contents)] = byte
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "saved_model.pb").write_bytes(contents)
    with suppress(DiscoveryError):
        assert isinstance(read_saved_model(folder), SavedModelSummary)


def node(name: str, op: str, *inputs: str, shared_name: str = "") -> bytes:
    attributes = {"shared_name": field(2, shared_name.encode())} if shared_name else {}
    return field(1, graphs.node(name, op, *inputs, **attributes))


def saved_bytes(graph: bytes) -> bytes:
    return field(2, meta_graph("serve", graph=graph).SerializeToString() + OBJECT_GRAPH)


def test_variables_that_nothing_fills_are_named(tmp_path: Path) -> None:
    graph = (
        node("kept", "VarHandleOp", shared_name="net/kept")
        + node("set", "VarHandleOp")
        + node("lost", "VarHandleOp", shared_name="net/lost")
        + node("x", "Placeholder")
        + node("call", "StatefulPartitionedCall", "x", "kept", "set", "lost")
        + node("restore", "StatefulPartitionedCall", "file", "kept")
        + node("init", "AssignVariableOp", "set", "value")
        + node("look", "ReadVariableOp", "lost")
    )
    assert read(tmp_path, saved_bytes(graph)).lost_variables == ("net/lost",)


def test_two_handles_of_one_variable_are_one(tmp_path: Path) -> None:
    """Handles with the same shared name mean the same variable."""
    graph = (
        node("a", "VarHandleOp", shared_name="net/w")
        + node("b", "VarHandleOp", shared_name="net/w")
        + node("call", "StatefulPartitionedCall", "a", "^b")
        + node("restore", "StatefulPartitionedCall", "b")
    )
    assert read(tmp_path, saved_bytes(graph)).lost_variables == ()


def test_models_of_tensorflow_1_are_not_suspected(tmp_path: Path) -> None:
    graph = node("v", "VarHandleOp") + node("call", "PartitionedCall", "v")
    assert read(tmp_path, field(2, meta_graph("serve", graph=graph).SerializeToString())).lost_variables == ()
