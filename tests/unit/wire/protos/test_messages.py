"""The messages and tensors of tfs_proxy.wire.protos, against bytes and against the tensorflow package."""

import subprocess
import sys
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tfs_proxy.wire import protos
from tfs_proxy.wire.data_types import DataType
from tfs_proxy.wire.protos import PredictResponse, TensorProto
from tfs_proxy.wire.protos.predict import model_spec, read_response, response_bytes
from tfs_proxy.wire.protos.tensors import (
    data_type_of,
    from_bits,
    listed_bytes,
    numpy_type,
    to_array,
    to_bits,
    to_bytes,
)

STRINGS, BFLOAT16 = 7, 14
NUMERIC = [kind for number in {*DataType} - {STRINGS, BFLOAT16} if (kind := numpy_type(number)) is not None]


def numeric_arrays() -> st.SearchStrategy[np.ndarray[Any, Any]]:
    """Arrays of every numeric type and of small shapes, empty and scalar ones included."""
    shapes = npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
    return st.sampled_from(NUMERIC).flatmap(lambda kind: arrays_of(kind, shapes))


def arrays_of(kind: np.dtype[Any], shapes: Any) -> st.SearchStrategy[np.ndarray[Any, Any]]:
    """Arrays of one type; of those that numpy has not itself, zeros and ones."""
    if kind.isbuiltin == 1:
        return npst.arrays(kind, shapes)
    bits = npst.arrays(np.uint8, shapes, elements=st.integers(0, 1))
    return bits.map(lambda array: array.astype(kind[0]).view(kind) if kind.names else array.astype(kind))


@given(
    numeric_arrays()
    | npst.arrays(object, npst.array_shapes(min_dims=0, max_side=3), elements=st.binary(max_size=9)),
    st.booleans(),
)
def test_arrays_survive_the_wire(array: np.ndarray[Any, Any], as_list: bool) -> None:
    """An array comes back as it went, whether as content or as a list of values; bytes as objects."""
    back = to_array(TensorProto.FromString(to_bytes(array, as_list=as_list)))
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


@given(numeric_arrays())
def test_the_memory_of_a_list_of_values_is_known_before_it_is_read(array: np.ndarray[Any, Any]) -> None:
    listed = TensorProto.FromString(to_bytes(array, as_list=True))
    assert listed_bytes(listed) == to_array(listed).nbytes
    assert listed_bytes(TensorProto.FromString(to_bytes(array))) == (0 if array.size else array.nbytes)


def test_text_arrays_are_strings() -> None:
    """Fixed-width text goes out as UTF-8."""
    assert to_array(TensorProto.FromString(to_bytes(np.array(["é", "b"])))).tolist() == ["é".encode(), b"b"]


@pytest.mark.parametrize(
    ("tensor", "want"),
    [
        (TensorProto(dtype="DT_STRING", tensor_content=b"\x00\x01\x02a\xffb"), [b"", b"a", b"\xffb"]),
        (
            TensorProto(dtype="DT_STRING", tensor_content=b"\xac\x02\x01\x00" + b"a" * 300 + b"b"),
            [b"a" * 300, b"b", b""],
        ),
        *(
            (TensorProto(dtype="DT_INT64", int64_val=values), want)
            for values, want in (([], [0, 0, 0]), ([5, 6], [5, 6, 6]), ([1, 2, 3, 4], [1, 2, 3]))
        ),
        (TensorProto(dtype="DT_BFLOAT16", half_val=[0x3F80, 0xC000]), [1.0, -2.0, -2.0]),
        (TensorProto(dtype="DT_COMPLEX64", scomplex_val=[1, 2, 3]), [1 + 2j] * 3),
        (TensorProto(dtype="DT_INT32", int_val=[7], tensor_shape={"unknown_rank": True}), [7, 7, 7]),
    ],
)
def test_odd_tensors_are_read_as_tensorflow_reads_them(tensor: TensorProto, want: list[Any]) -> None:
    """A short list repeats its last value, an empty one means zeros; strings may be packed into content."""
    tensor.tensor_shape.dim.add(size=3)
    response = PredictResponse(outputs={"y": tensor}).SerializeToString()
    assert to_array(tensor).tolist() == read_response(response).outputs["y"].tolist() == want


@pytest.mark.parametrize(
    "tensor",
    [
        TensorProto(dtype="DT_STRING", tensor_content=b"\x01"),
        TensorProto(dtype="DT_STRING", tensor_content=b"\x01ab"),
        TensorProto(dtype="DT_STRING", tensor_content=b"\x01", tensor_shape={"dim": [{"size": 2}]}),
        TensorProto(dtype="DT_FLOAT", tensor_content=b"12345678"),
        TensorProto(dtype="DT_RESOURCE"),
        TensorProto(dtype="DT_FLOAT", tensor_content=b"123"),
        TensorProto(dtype="DT_FLOAT", tensor_shape={"dim": [{"size": -1}]}),
    ],
)
def test_unreadable_tensors_are_value_errors(tensor: TensorProto) -> None:
    """Content that does not fit the shape, or a type without arrays, is refused."""
    with pytest.raises(ValueError, match=r"tensor|array|buffer|message"):
        to_array(tensor)


def test_arrays_without_a_tensor_type_are_refused() -> None:
    """Dates have no TensorProto."""
    with pytest.raises(TypeError, match="datetime64"):
        data_type_of(np.array(["2020-01-01"], "datetime64[D]"))
    with pytest.raises(TypeError, match="int"):
        to_bytes(np.array([1, b"a"], object))


@given(st.text(), st.none() | st.integers(0, 2**63 - 1), st.none() | st.text(), st.none() | st.text())
def test_a_model_spec_is_what_protobuf_writes(
    name: str, version: int | None, label: str | None, signature: str | None
) -> None:
    """A label is sent if there is no version; neither means the newest version."""
    spec = protos.ModelSpec.FromString(model_spec(name, version, label, signature))

    want = protos.ModelSpec(name=name, signature_name=signature or "")
    if version is not None:
        want.version.value = version
    elif label is not None:
        want.version_label = label
    assert spec == want


@given(
    st.lists(st.integers(-1, 3), max_size=70), st.booleans(), st.none() | st.integers(0, 2**63 - 1), st.text()
)
def test_shapes_and_versions_are_those_that_protobuf_writes(
    sizes: list[int], unknown_rank: bool, version: int | None, name: str
) -> None:
    """Dimensions have names, too; a shape that is not known, or that no array has, is a ValueError."""
    response = protos.PredictResponse()
    tensor = response.outputs["y"]
    tensor.dtype = 1  # type: ignore[assignment]  # its number
    tensor.tensor_shape.unknown_rank = unknown_rank
    for size in sizes:
        tensor.tensor_shape.dim.add(size=size, name=name)
    count = prod(sizes) if min(sizes, default=0) >= 0 else 0
    assume(count <= 1000)
    tensor.tensor_content = bytes(4 * count)
    if version is not None:
        response.model_spec.version.value = version
    try:
        predicted = read_response(response.SerializeToString())
    except ValueError:
        assert min(sizes, default=0) < 0 or len(sizes) > 64
        return
    assert predicted.outputs["y"].shape == tuple(sizes)
    assert predicted.version == version


LOADED_BY_THREADS = """
import sys
from concurrent.futures import ThreadPoolExecutor
sys.setswitchinterval(1e-6)
def tensor(_):
    from tfs_proxy.wire.protos import TensorProto
    return TensorProto
with ThreadPoolExecutor(8) as threads:
    assert len(set(threads.map(tensor, range(64)))) == 1
"""


def test_threads_that_ask_at_once_get_the_same_messages() -> None:
    """Messages of two pools would be strangers to each other."""
    subprocess.run([sys.executable, "-c", LOADED_BY_THREADS], check=True)


def test_what_there_is_not_is_an_attribute_error() -> None:
    """Messages come when they are asked for, but only those that there are."""
    assert not hasattr(protos, "NoMessage")
    assert not hasattr(protos, "no_module")


@given(
    st.dictionaries(st.text(max_size=3), numeric_arrays(), max_size=3),
    st.booleans(),
    st.none() | st.integers(1, 2**62),
)
def test_responses_are_looked_at_in_place(
    outputs: dict[str, np.ndarray[Any, Any]], as_list: bool, version: int | None
) -> None:
    """A response read in place holds what the generated messages read, and the version."""
    tensors = {
        name: TensorProto.FromString(to_bytes(array, as_list=as_list)) for name, array in outputs.items()
    }
    response = PredictResponse.FromString(response_bytes(model_spec("m", version), {}))
    predicted = read_response(
        PredictResponse(model_spec=response.model_spec, outputs=tensors).SerializeToString()
    )
    assert predicted.version == version
    assert predicted.outputs.keys() == outputs.keys()
    for name, array in outputs.items():
        assert predicted.outputs[name].dtype == array.dtype
        assert predicted.outputs[name].flags.aligned
        np.testing.assert_array_equal(predicted.outputs[name], array)


@given(st.binary(max_size=60), st.none() | numeric_arrays(), st.integers(0, 200))
def test_no_damage_breaks_the_reader(noise: bytes, array: np.ndarray[Any, Any] | None, at: int) -> None:
    """Any bytes, and a response with bytes put into it, are a response or a ValueError."""
    message = b"" if array is None else response_bytes(b"", {"y": array})
    with suppress(ValueError):
        outputs = read_response(message[:at] + noise + message[at:]).outputs
        assert all(isinstance(array, np.ndarray) for array in outputs.values())


@given(npst.arrays(np.float32, st.integers(0, 9)))
def test_bfloat16_is_rounded_as_tensorflow_does(array: np.ndarray[Any, np.dtype[np.float32]]) -> None:
    with np.errstate(all="ignore"):
        want = array.astype(numpy_type(14)).astype(np.float32)
    np.testing.assert_array_equal(from_bits(to_bits(array)), want)


def test_a_list_of_strings_counts_its_objects() -> None:
    """Each is an object of its own, or stands in an array a second time."""
    tensor = TensorProto(dtype="DT_STRING", string_val=[b"a"])
    for size in (1000, 1000):
        tensor.tensor_shape.dim.add(size=size)
    assert listed_bytes(tensor) == 64_000_000


def test_truths_of_any_byte_go_on_as_ones() -> None:
    tensor = TensorProto(dtype="DT_BOOL", tensor_content=b"\x00\x85\x02")
    tensor.tensor_shape.dim.add(size=3)
    back = TensorProto.FromString(to_bytes(to_array(tensor), as_list=True))
    assert list(back.bool_val) == [False, True, True]
