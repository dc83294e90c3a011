"""The quick way through Predict reads what the general way reads, or leaves it to that."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.embedded.core.quick_predict import PlainTarget, read_plain
from tfs_proxy.protos import PredictRequest, TensorProto
from tfs_proxy.protos.tensors import to_array, to_bytes

KINDS = ["f4", "f8", "i4", "i8", "u1", "c8", "f2", "O"]


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """An array of some type and shape."""
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    kind = draw(st.sampled_from(KINDS))
    values = draw(st.lists(st.integers(0, 100), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    if kind == "O":
        made = np.empty(len(values), object)
        made[:] = [bytes([value]) for value in values]
        return made.reshape(shape)
    return np.array(values, kind).reshape(shape)


@given(st.dictionaries(st.sampled_from(["x", "caf\u00e9", ""]), arrays()), st.booleans())
def test_arrays_are_those_of_the_message(inputs: dict[str, np.ndarray], as_list: bool) -> None:
    """Of any type; what is not plain is left alone."""
    request = PredictRequest()
    request.model_spec.name = "m"
    request.model_spec.version.value = 3
    request.model_spec.signature_name = "s"
    for name, array in inputs.items():
        request.inputs[name].ParseFromString(to_bytes(array, as_list=as_list))
    plain = read_plain(request.SerializeToString())

    if plain is None:
        assert as_list or any(not array.size for array in inputs.values())
        return
    assert plain.target == PlainTarget("m", 3, None, "s")
    assert plain.arrays.keys() == inputs.keys()
    for name, array in plain.arrays.items():
        assert array.dtype == inputs[name].dtype
        np.testing.assert_array_equal(array, inputs[name])


@given(st.binary(max_size=60))
def test_no_tensor_is_read_otherwise_than_by_protobuf(content: bytes) -> None:
    """Whatever the bytes are: the same array, or none."""
    entry = b"\x0a\x01x\x12" + bytes([len(content)]) + content
    plain = read_plain(b"\x0a\x03\x0a\x01m\x12" + bytes([len(entry)]) + entry)
    if plain is not None:
        np.testing.assert_array_equal(plain.arrays["x"], to_array(TensorProto.FromString(content)))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x0a",
        b"\x0a\x03\x0a\x01m\x0a\x03\x0a\x01n",
        b"\x0a\x03\x0a\x01m\x1a\x01y",
        b"\x0a\x03\x0a\x01m\x12\x00",
        b"\x0a\x03\x0a\x09m",
        b"\x0a\x84\x04\x0a\x81\x04" + b"m" * 513,
    ],
)
def test_what_is_not_plain_is_left_alone(message: bytes) -> None:
    """No model, two of them, a filter of outputs, an entry of nothing, a broken or a very long name."""
    assert read_plain(message) is None


def test_more_than_a_few_strings_are_left_alone() -> None:
    """They take time that the event loop has not."""
    request = PredictRequest()
    request.model_spec.name = "m"
    request.inputs["x"].ParseFromString(to_bytes(np.array([b"a"] * 65, object)))
    assert read_plain(request.SerializeToString()) is None
