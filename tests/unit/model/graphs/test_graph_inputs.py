"""What a graph tells of its strings: pictures, base64, and the features of tf.Examples."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.graphs import node
from tfs_proxy.model.graph_inputs import GraphInputs, read_graph_inputs
from tfs_proxy.values.errors import DiscoveryError
from tfs_proxy.values.signature import CLASSIFY_METHOD, Signature, TensorSpec
from tfs_proxy.wire.protobuf_writer import field, varint_field

FLOAT, INT64 = 1, 9
AGE = TensorSpec("age", "DT_INT64", ())
SIZE = TensorSpec("size", "DT_FLOAT", (2,))


def constant(name: str, *strings: str) -> bytes:
    return node(name, "Const", value=field(8, b"".join(field(8, s.encode()) for s in strings)))


TYPES = field(1, field(6, bytes((INT64, FLOAT))))
UNPACKED_TYPES = field(1, varint_field(6, INT64) + varint_field(6, FLOAT))
SHAPES = field(1, field(7, b"") + field(7, field(2, varint_field(1, 2))))
ONE_SHAPE = field(1, field(7, b""))


def second_form(serialized: str = "fed", types: bytes = TYPES, shapes: bytes = SHAPES) -> list[bytes]:
    inputs = (f"{serialized}:0", "names", "sparse", "dense:output:0", "ragged")
    parse = node("parse", "ParseExampleV2", *inputs, Tdense=types, dense_shapes=shapes)
    return [constant("dense", "age", "size"), parse]


FIRST_INPUTS = ("fed", "names", "absent", "first", "second", "default")
COUNTS = {"Nsparse": varint_field(3, 1), "Ndense": varint_field(3, 2)}
FIRST_FORM = [
    *(constant("first", "age"), constant("second", "size"), constant("absent", "more")),
    node("parse", "ParseExample", *FIRST_INPUTS, **COUNTS, Tdense=TYPES, dense_shapes=SHAPES),
]
KEYS = field(1, field(2, b"age") + field(2, b"size"))
SINGLE = [node("parse", "ParseSingleExample", "fed", dense_keys=KEYS, Tdense=TYPES, dense_shapes=SHAPES)]


def graph_of(nodes: Sequence[bytes], *functions: Sequence[bytes]) -> bytes:
    """A saved_model.pb with a graph of these nodes, and of functions of theirs."""
    library = b"".join(field(1, b"".join(field(3, each) for each in function)) for function in functions)
    graph = b"".join(field(1, each) for each in nodes) + field(2, library)
    return field(2, field(2, graph))


def read(folder: Path, saved_model: bytes) -> GraphInputs:
    (folder / "saved_model.pb").write_bytes(saved_model)
    return read_graph_inputs(folder)


def fed_by(name: str) -> Signature:
    """A signature whose only input is this tensor."""
    return Signature("s", CLASSIFY_METHOD, {"inputs": TensorSpec("inputs", "DT_STRING", (None,), name)}, {})


@pytest.mark.parametrize(
    "nodes",
    [second_form(), second_form(types=UNPACKED_TYPES), FIRST_FORM, SINGLE],
    ids=["second form", "types one by one", "first form", "single"],
)
@pytest.mark.parametrize("in_function", [False, True])
def test_features(tmp_path: Path, nodes: list[bytes], in_function: bool) -> None:
    """Each op that parses tf.Examples tells type and shape of its dense features, in functions as well."""
    graph = read(tmp_path, graph_of([], nodes) if in_function else graph_of(nodes))

    assert graph.features_of(fed_by("fed:0")) == {"age": AGE, "size": SIZE}


def test_whose_features(tmp_path: Path) -> None:
    """A signature has those of the node that it feeds; if it feeds none, those that all nodes have."""
    types = field(1, field(6, bytes((INT64,))))
    other = [
        constant("keys", "age"),
        node("p", "ParseExampleV2", "other", "n", "s", "keys", "r", Tdense=types, dense_shapes=ONE_SHAPE),
    ]
    both = read(tmp_path, graph_of([*second_form(), *other]))
    same = read(tmp_path, graph_of(second_form(), second_form("inner")))

    assert both.features_of(fed_by("other:0")) == {"age": AGE}
    assert both.features_of(fed_by("elsewhere:0")) is None
    assert same.features_of(fed_by("elsewhere:0")) == {"age": AGE, "size": SIZE}


@pytest.mark.parametrize(
    ("ops", "told"),
    [
        ((), GraphInputs()),
        (("DecodeJpeg",), GraphInputs(decodes_pictures=True)),
        (("DecodeImage", "ResizeBilinear"), GraphInputs(decodes_pictures=True, resizes=True)),
        (("DecodeBase64", "DecodePng"), GraphInputs(decodes_pictures=True, from_base64=True)),
    ],
)
def test_pictures(tmp_path: Path, ops: Sequence[str], told: GraphInputs) -> None:
    assert read(tmp_path, graph_of([node("n", op) for op in ops])) == told


def test_counts_that_differ(tmp_path: Path) -> None:
    """A damaged graph is refused by a sentence that names the folder and the node."""
    with pytest.raises(
        DiscoveryError, match=f"{tmp_path} is damaged: a ParseExampleV2 has 2 names, 2 types, 1"
    ):
        read(tmp_path, graph_of(second_form(shapes=ONE_SHAPE)))


@given(at=st.integers(0, 200), byte=st.integers(0, 255))
def test_damage(tmp_path_factory: pytest.TempPathFactory, at: int, byte: int) -> None:
    contents = bytearray(graph_of(second_form(), FIRST_FORM))
    contents[at % len(contents)] = byte
    with suppress(DiscoveryError):
        read(tmp_path_factory.mktemp("damaged"), bytes(contents))


def test_no_graph(tmp_path: Path) -> None:
    assert read_graph_inputs(tmp_path) == GraphInputs()
    assert read(tmp_path, b"") == GraphInputs()
