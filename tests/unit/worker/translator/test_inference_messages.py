"""ModelInferRequest to PredictRequest and its answer back, read by the generated messages of both."""

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tfs_proxy.values.errors import BadInput, PayloadTooLarge, UpstreamError
from tfs_proxy.wire.protobuf_writer import field
from tfs_proxy.wire.protos import PredictRequest, PredictResponse, TensorProto
from tfs_proxy.wire.protos.open_inference import ModelInferRequest, ModelInferResponse
from tfs_proxy.wire.protos.predict import model_spec, response_bytes
from tfs_proxy.wire.protos.tensors import to_array
from tfs_proxy.worker.translator.inference_messages import (
    MOST_TENSORS,
    AskedModel,
    TranslatedRequest,
    infer_answer,
    translated,
)

LISTS = [
    ("BOOL", "bool_contents", [True, False], np.bool_),
    ("INT8", "int_contents", [-128, 127], np.int8),
    ("INT16", "int_contents", [-(2**15), 2**15 - 1], np.int16),
    ("INT32", "int_contents", [-(2**31), 2**31 - 1], np.int32),
    ("INT64", "int64_contents", [-(2**63), 2**63 - 1], np.int64),
    ("UINT8", "uint_contents", [0, 255], np.uint8),
    ("UINT16", "uint_contents", [0, 2**16 - 1], np.uint16),
    ("UINT32", "uint_contents", [0, 2**32 - 1], np.uint32),
    ("UINT64", "uint64_contents", [0, 2**64 - 1], np.uint64),
    ("FP32", "fp32_contents", [0.5, float("inf")], np.float32),
    ("FP64", "fp64_contents", [0.1, -1e300], np.float64),
]


def infer(**fields: Any) -> ModelInferRequest:
    return ModelInferRequest(model_name="m", **fields)


def tensor(datatype: str, shape: list[int], **contents: Any) -> dict[str, Any]:
    return {"name": "x", "datatype": datatype, "shape": shape, "contents": contents or None}


def predict(request: ModelInferRequest) -> PredictRequest:
    return PredictRequest.FromString(translated(request.SerializeToString()).message)


def refusal(request: ModelInferRequest | bytes) -> str:
    message = request if isinstance(request, bytes) else request.SerializeToString()
    with pytest.raises(BadInput) as caught:
        translated(message)
    return str(caught.value)


@pytest.mark.parametrize(("datatype", "field", "values", "kind"), LISTS)
def test_listed_and_raw_values_are_the_same_tensor(
    datatype: str, field: str, values: list[Any], kind: type
) -> None:
    """Both of them exactly the values, in the type of the table."""
    wanted: npt.NDArray[Any] = np.array(values, kind)
    listed = infer(inputs=[tensor(datatype, [2, 1], **{field: values})])
    raw = infer(inputs=[tensor(datatype, [2, 1])], raw_input_contents=[wanted.tobytes()])

    for request in (listed, raw):
        array = to_array(predict(request).inputs["x"])
        assert (array.dtype, array.shape) == (wanted.dtype, (2, 1))
        assert array.tobytes() == wanted.tobytes()


def test_strings_come_listed_or_with_their_lengths() -> None:
    """Empty strings, and any byte."""
    strings = [b"", b"\x00\xff", b"abc"]
    raw = b"".join(struct.pack("<I", len(value)) + value for value in strings)

    for request in (
        infer(inputs=[tensor("BYTES", [3], bytes_contents=strings)]),
        infer(inputs=[tensor("BYTES", [3])], raw_input_contents=[raw]),
    ):
        assert list(predict(request).inputs["x"].string_val) == strings


@pytest.mark.parametrize(
    ("inputs", "raw", "text"),
    [
        ([tensor("FP32", [2**31, 2**31])], [b""], 'The input "x"'),
        ([tensor("BYTES", [2])], [b"\x01\x00\x00\x00a"], 'The input "x" has 5 bytes, too few'),
        ([tensor("BYTES", [1])], [b"\xff\xff\xff\xffa"], 'The input "x": element 1 of 1 goes beyond'),
        ([tensor("BYTES", [1])], [b"\x00\x00\x00\x00a"], 'The input "x" has 1 bytes behind'),
        ([tensor("BYTES", [2**40])], [b""], 'The input "x" has 0 bytes, too few'),
        ([tensor("FP32", [2], fp32_contents=[1.0])], [], 'The input "x" has 1 values'),
        ([tensor("FP32", [2**40], fp32_contents=[1.0])], [], 'The input "x" has 1 values'),
        ([tensor("FP32", [1], int_contents=[1])], [], "in fp32_contents, not in int_contents"),
        ([tensor("INT8", [1], int_contents=[128])], [], 'The input "x" has a value that is not INT8'),
        ([tensor("FP32", [1], fp32_contents=[1.0])], [b"1234"], "they do not mix"),
        ([tensor("BF16", [1], fp32_contents=[1.0])], [], "only raw_input_contents"),
        ([tensor("FP32", [1])], [b"1234", b"1234"], "1 inputs, but 2 raw_input_contents"),
        ([tensor("FP32", [1])] * 2, [b"1234"] * 2, 'The input "x" is there twice'),
        ([], [], "The request has 0 inputs"),
        ([{"name": "x"}] * (MOST_TENSORS + 1), [], f"has {MOST_TENSORS + 1} inputs"),
    ],
)
def test_a_wrong_tensor_is_named(inputs: list[Any], raw: list[bytes], text: str) -> None:
    """Each sentence says which tensor and what is wrong, before anything is allocated for it."""
    assert text in refusal(infer(inputs=inputs, raw_input_contents=raw))


def test_other_requests_that_are_refused() -> None:
    """No model, a version beyond all numbers, classification, what is no message."""
    good = tensor("FP32", [1], fp32_contents=[1.0])
    assert "names no model" in refusal(ModelInferRequest(inputs=[good]))
    assert "no version" in refusal(infer(model_version="9" * 19, inputs=[good]))
    classes = {"classification": {"int64_param": 3}}
    assert "classification" in refusal(infer(inputs=[good], outputs=[{"name": "y", "parameters": classes}]))
    assert "asked for twice" in refusal(infer(inputs=[good], outputs=[{"name": "y"}] * 2))
    assert "must be a string" in refusal(infer(inputs=[good], parameters={"signature": {"int64_param": 1}}))
    for broken in (b"\xff", b"\x0a\x05ab", b"\x2a\x02\xff\xff", b"\x0a\x01\xff"):
        assert "not a message of ModelInfer" in refusal(broken)
    assert "0 inputs" in refusal(infer(raw_input_contents=[b""] * 20_000))


@pytest.mark.parametrize(
    "request_of_many",
    [
        infer(inputs=[tensor("BYTES", [1000])], raw_input_contents=[b"\0" * 4000]),
        infer(inputs=[tensor("BYTES", [1000], bytes_contents=[b""] * 1000)]),
        infer(inputs=[tensor("INT64", [1000], int64_contents=[0] * 1000)]),
        infer(inputs=[tensor("INT32", [250], int_contents=[0] * 250)] * 4),
    ],
)
def test_values_that_take_too_much_memory_are_refused(request_of_many: ModelInferRequest) -> None:
    with pytest.raises(PayloadTooLarge):
        translated(request_of_many.SerializeToString(), decoded_bytes=7000)


def test_single_numbers_count_as_those_of_a_list() -> None:
    """A client may write each number as a field of its own."""
    contents = b"\x18\x00" * 1000
    described = tensor("INT64", [1000])
    one_input = ModelInferRequest.InferInputTensor(**described).SerializeToString()
    listed = one_input + field(5, contents)
    message = infer().SerializeToString() + field(5, listed)

    assert list(to_array(predict(ModelInferRequest.FromString(message)).inputs["x"])) == [0] * 1000
    with pytest.raises(PayloadTooLarge):
        translated(message, decoded_bytes=7000)


def test_a_shape_has_few_dimensions() -> None:
    """Others are refused before anyone multiplies their sizes."""
    assert "a shape that no tensor can have" in refusal(infer(inputs=[tensor("FP32", [9] * 65)]))
    assert "a shape that no tensor can have" in refusal(infer(inputs=[tensor("FP32", [9] * 1_000_000)]))


ASKED = TranslatedRequest(AskedModel("m"), b"", "id-1", (), {})


def answer(message: bytes) -> ModelInferResponse:
    return ModelInferResponse.FromString(infer_answer(message, ASKED))


def test_bfloat16_of_a_list_and_of_memory() -> None:
    """Two bytes an element, the same bits."""
    response = PredictResponse()
    response.outputs["a"].CopyFrom(TensorProto(dtype="DT_BFLOAT16", half_val=[0x3F80, 0x7FC1]))
    response.outputs["b"].CopyFrom(TensorProto(dtype="DT_BFLOAT16", tensor_content=b"\x80\x3f\xc1\x7f"))
    for tensor in response.outputs.values():
        tensor.tensor_shape.dim.add(size=2)

    got = answer(response.SerializeToString())

    assert [output.datatype for output in got.outputs] == ["BF16", "BF16"]
    assert list(got.raw_output_contents) == [b"\x80\x3f\xc1\x7f"] * 2


@pytest.mark.parametrize("message", [b"\xff", b"\x0a\x01\xff", b"\x0a\x03\x12\x01\x08"])
def test_an_unreadable_answer_is_the_model_servers_mistake(message: bytes) -> None:
    """The error is an UpstreamError."""
    with pytest.raises(UpstreamError):
        infer_answer(message, ASKED)


def test_a_type_that_the_protocol_lacks_is_named() -> None:
    """Complex numbers have no datatype."""
    outputs: dict[str, Any] = {"y": np.array([1j], np.complex64)}
    with pytest.raises(UpstreamError, match='"y" is DT_COMPLEX64'):
        infer_answer(response_bytes(model_spec("m", 7), outputs), ASKED)
