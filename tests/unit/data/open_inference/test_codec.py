"""Requests and answers of the Open Inference Protocol, as JSON and with binary data, both ways."""

import contextlib
import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from support.signatures import Shape
from tfs_proxy.data.open_inference.datatypes import DATATYPES, Datatype, from_raw, to_raw
from tfs_proxy.data.open_inference.infer_codec import InferAnswer, write_answer
from tfs_proxy.data.open_inference.infer_request import InferRequest
from tfs_proxy.data.open_inference.json_request import read_request
from tfs_proxy.values.errors import BadInput, PayloadTooLarge
from tfs_proxy.values.memory import MEGABYTE, MemoryBudget
from tfs_proxy.values.signature import PREDICT_METHOD, Signature, TensorSpec

NUMBERS = [datatype for datatype in DATATYPES.values() if datatype.item_bytes is not None]
SHAPES = arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


def signature(datatype: str = "DT_FLOAT", shape: Shape = (None, 2)) -> Signature:
    specs = {name: {name: TensorSpec(name, datatype, shape)} for name in "xy"}
    return Signature("serving_default", PREDICT_METHOD, specs["x"], specs["y"])


def tensor(**changes: Any) -> dict[str, Any]:
    """An input of two numbers, with changes; None removes a key."""
    given = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2.5]} | changes
    return {key: value for key, value in given.items() if value is not None}


def read(document: object, raw: bytes = b"", json_size: int | None = None) -> InferRequest:
    """Read a request of this JSON with these bytes behind it."""
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    size = len(text) if raw and json_size is None else json_size
    return read_request(text + raw, size, MemoryBudget())


def written(answer: InferAnswer) -> tuple[Any, bytes]:
    """The JSON of an answer, and the bytes behind it."""
    size = len(answer.body) if answer.json_size is None else answer.json_size
    return json.loads(answer.body[:size]), answer.body[size:]


@st.composite
def tensors(draw: st.DrawFn) -> tuple[Datatype, npt.NDArray[Any]]:
    """A datatype and an array that it carries, BF16 as float32 that bfloat16 has exactly."""
    datatype = draw(st.sampled_from(NUMBERS))
    shape = draw(SHAPES)
    if datatype.name == "BF16":
        bits = draw(arrays_of.arrays(np.uint16, shape))
        return datatype, np.asarray((bits.astype(np.uint32) << 16).view(np.float32)).reshape(shape)
    return datatype, draw(arrays_of.arrays(datatype.array, shape))


@given(tensors())
def test_raw_bytes_keep_every_bit(given_tensor: tuple[Datatype, npt.NDArray[Any]]) -> None:
    """Numbers of every datatype, NaNs included, scalars and empty tensors."""
    datatype, array = given_tensor
    raw = bytes(to_raw(array, datatype))

    read_back = from_raw(raw, datatype, array.shape, "x")

    assert read_back.dtype == datatype.array
    assert read_back.shape == array.shape
    if datatype.name == "BF16":
        np.testing.assert_array_equal(read_back, array)
    else:
        assert read_back.tobytes() == array.tobytes()


@given(tensors().filter(lambda given_tensor: given_tensor[0].has_json))
def test_json_keeps_every_finite_number(given_tensor: tuple[Datatype, npt.NDArray[Any]]) -> None:
    datatype, array = given_tensor
    array = np.nan_to_num(array) if array.dtype.kind == "f" else array
    specs = signature(datatype.tensorflow, None)
    answered, _ = written(write_answer(InferRequest(), "m", "1", {"y": array}, specs))
    (output,) = answered["outputs"]

    request = read({"inputs": [{**output, "name": "x"}]})

    assert output["datatype"] == datatype.name
    assert output["shape"] == list(array.shape)
    back = request.batch(specs).inputs["x"]
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize(
    ("datatype", "data", "expected"),
    [("FP32", 3, 3.0), ("FP32", [3], 3.0), ("BYTES", "a", b"a"), ("BOOL", True, True), ("INT8", -3, -3)],
)
def test_a_scalar_is_a_plain_value_or_a_list_of_one(datatype: str, data: Any, expected: Any) -> None:
    request = read({"inputs": [tensor(datatype=datatype, shape=[], data=data)]})

    assert request.inputs[0].array.shape == ()
    assert request.inputs[0].array.item() == expected


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": None}, 'Each input needs a "name"'),
    ({"datatype": "FP8"}, 'input "x" has the datatype "FP8": it must be one of BOOL'),
    ({"datatype": None}, 'input "x" has the datatype that is not a string'),
    ({"shape": [-1, 2]}, 'input "x" needs a shape'),
    ({"shape": [2**62, 2**62]}, "no tensor can have"),
    ({"shape": [0] * 65}, "no tensor can have"),
    ({"shape": [3]}, r'"x" has 2 values, but the shape \[3\] takes 3'),
    ({"data": None}, 'neither of "data" and binary_data_size'),
    ({"parameters": {"binary_data_size": 8}}, "both of"),
    ({"data": 5}, 'needs a list as "data"'),
    ({"data": ["a", 1]}, "value 1 is 'a', but FP32 takes a number"),
    ({"data": [1, None]}, "value 2 is null"),
    ({"data": [1, {}]}, "value 2 is a list or an object"),
    ({"datatype": "BYTES", "data": ["a", ["b"]]}, "lists and plain values side by side"),
    (
        {"datatype": "BYTES", "data": ["/w==", "\xff"], "parameters": {"content_type": "base64"}},
        'input "x": value 2 is not base64',
    ),
    ({"datatype": "INT8", "data": [1, 200]}, "value 2 is 200, which INT8 can't hold"),
    ({"datatype": "INT8", "data": [1, 1.5]}, "value 2 is 1.5, but INT8 takes a whole number"),
    ({"datatype": "BOOL", "data": [True, 1]}, "value 2 is 1, but BOOL takes true or false"),
    ({"datatype": "FP16"}, "FP16, which JSON does not carry: send it as binary data"),
    ({"name": "z"}, 'input "z" is unknown: the model takes x'),
    ({"datatype": "FP64"}, '"x" has the datatype FP64, but the model takes FP32'),
    ({"shape": [2]}, r'"x" has the shape \[2\], but the model takes \[\?, 2\]'),
    ({"parameters": []}, '"parameters" that are not an object'),
    ({"parameters": {"a": []}}, 'parameter "a" must be'),
]
"""Changes of a tensor."""


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (b"", "The body is not JSON"),
        (b"[]", "must be a JSON object"),
        (b'{"inputs": [NaN]}', r"not JSON: .*, at byte 12 \(line 1\)"),
        (b"[" * 100_000, "not JSON"),
        (b"[" * 500 + b"1" + b"0" * 30 + b"]" * 500, "not JSON"),
        (b'{"id": "\\ud800"}', "not JSON: no low surrogate"),
        (b'{"id": "\xff"}', "not JSON: byte 8 is not UTF-8"),
        ({}, 'needs "inputs"'),
        ({"inputs": {}}, '"inputs" must be a list'),
        ({"inputs": [1]}, 'Element 1 of "inputs" is not an object'),
        ({"inputs": [tensor(), tensor()]}, 'input "x" comes twice'),
        (
            {"inputs": [tensor()], "parameters": dict.fromkeys(map(str, range(1001)), 1)},
            "more than 1000 para",
        ),
        ({"inputs": [tensor()], "id": 5}, '"id" must be a string'),
        ({"inputs": [tensor()], "outputs": [{"name": "y"}, {"name": "y"}]}, 'output "y" is asked for twice'),
        (
            {"inputs": [tensor()], "outputs": [{"name": "y", "parameters": {"binary_data": 1}}]},
            "binary_data must be true or false",
        ),
        (
            {"inputs": [tensor()], "outputs": [{"name": "y", "parameters": {"classification": 3}}]},
            "is not supported",
        ),
        *(({"inputs": [tensor(**changes)]}, sentence) for changes, sentence in WRONG),
    ],
)
def test_a_broken_request_is_refused_by_name(document: object, sentence: str) -> None:
    """The sentence says which tensor, which value and what is wrong."""
    with pytest.raises(BadInput, match=sentence):
        read(document).batch(signature())


@pytest.mark.parametrize(
    ("size", "raw", "sentence"),
    [
        (8, b"1234", '"x" has 8 bytes of binary data, but only 4 are left'),
        (4, b"1234", r'"x" has 4 bytes, but FP32 of the shape \[1, 2\] takes 8'),
        (8, b"12345678+", "1 bytes behind the binary data"),
        (-1, b"1", "must be a whole number that is not negative"),
        ("8", b"12345678", "must be a whole number"),
        (2**70, b"1", r"must be a whole number|bytes of binary data|not JSON"),
    ],
)
def test_binary_data_of_the_wrong_size_is_refused(size: object, raw: bytes, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        read({"inputs": [tensor(data=None, parameters={"binary_data_size": size})]}, raw)


def test_a_byte_that_is_no_boolean_is_refused() -> None:
    """TensorFlow would take it for true here, and for something else there."""
    with pytest.raises(BadInput, match="not a BOOL"):
        from_raw(b"\2", DATATYPES["BOOL"], [1], "x")


def test_what_a_request_becomes_is_bounded() -> None:
    """Numbers and strings are counted before they are made."""
    text = b'{"inputs": [{"name": "x", "shape": [100001], "datatype": "%b", "data": [%b]}]}'
    numbers = text % (b"INT8", b"0," * 100_000 + b"0")
    with pytest.raises(PayloadTooLarge):
        read_request(numbers, None, MemoryBudget(MEGABYTE))
    strings = text % (b"BYTES", b'"a",' * 100_000 + b'"a"')
    for body, megabytes in ((numbers, 10), (strings, 20), (numbers[:-1], 20)):
        with contextlib.suppress(BadInput):
            read_request(body, None, MemoryBudget(megabytes * MEGABYTE))
    for body, megabytes in ((strings, 10), (numbers[:-1], 2)):
        with pytest.raises(PayloadTooLarge):
            read_request(body, None, MemoryBudget(megabytes * MEGABYTE))
    with pytest.raises(PayloadTooLarge):
        from_raw(bytes(MEGABYTE), DATATYPES["BYTES"], [MEGABYTE // 4], "x", MemoryBudget(MEGABYTE))


def test_json_carries_bytes_as_base64() -> None:
    """In requests, and in answers that ask for it, by the parameter that MLServer has; numbers stay numbers."""
    base64 = {"parameters": {"content_type": "base64"}}
    given = {"name": "x", "shape": [1, 2], "datatype": "BYTES", "data": [["/w==", "YQ"]], **base64}
    asked = read({"inputs": [given], "outputs": [{"name": "y", **base64}]})
    assert asked.batch(signature("DT_STRING")).inputs["x"].tolist() == [[b"\xff", b"a"]]
    for dtype, data in (
        ("DT_STRING", np.array([[b"\xff", b"a"]], object)),
        ("DT_STRING", np.array([[b"\xff", b"a"]], object).reshape((1,) * 39 + (2,))),
        ("DT_FLOAT", np.array([[1, 2]], np.float32)),
    ):
        (output,) = written(write_answer(asked, "m", "1", {"y": data}, signature(dtype)))[0]["outputs"]
        is_text = dtype == "DT_STRING"
        assert output["data"] == (["/w==", "YQ=="] if is_text else [1, 2])
        assert output.get("parameters") == (base64["parameters"] if is_text else None)


@pytest.mark.parametrize(
    ("dtype", "array", "sentence"),
    [
        ("DT_FLOAT", np.array([np.nan], np.float32), "not finite"),
        ("DT_HALF", np.array([1], np.float16), "FP16, which JSON does not carry: ask for it"),
        ("DT_STRING", np.array([b"\xff"], object), "not UTF-8 .*binary_data.*base64"),
        ("DT_COMPLEX64", np.array([1j], np.complex64), "DT_COMPLEX64, which this protocol does not carry"),
    ],
)
def test_an_output_that_json_does_not_carry_is_refused(
    dtype: str, array: npt.NDArray[Any], sentence: str
) -> None:
    """The sentence says how to get it, if there is a way."""
    with pytest.raises(BadInput, match=sentence):
        write_answer(InferRequest(), "m", "1", {"y": array}, signature(dtype))


@given(st.binary(max_size=200), st.none() | st.integers(0, 220))
def test_no_body_is_more_than_refused(body: bytes, json_size: int | None) -> None:
    with pytest.raises(BadInput):
        read_request(body, json_size, MemoryBudget()).batch(signature())


@pytest.mark.parametrize(
    ("datatype", "data", "expected"),
    [
        ("BYTES", ["ä", ""], ["ä".encode(), b""]),
        ("FP32", [[1], [2]], [1.0, 2.0]),
        ("FP64", [10**20, 2], [1e20, 2.0]),
        ("INT8", [1.0, 2e1], [1, 20]),
        ("UINT64", [1.0, 2e1], [1, 20]),
    ],
)
def test_data_is_read_nested_or_flat(datatype: str, data: list[Any], expected: list[Any]) -> None:
    """Row by row, whatever the lists look like; whole numbers may have a point."""
    request = read({"inputs": [tensor(datatype=datatype, data=data)]})
    assert request.inputs[0].array.tolist() == [expected]


def test_json_beyond_the_body_is_refused() -> None:
    with pytest.raises(BadInput, match="The body has 2 bytes, but its JSON is said to have 3"):
        read_request(b"{}", 3, MemoryBudget())
