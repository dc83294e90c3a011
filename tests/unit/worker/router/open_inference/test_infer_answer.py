"""PredictResponse to ModelInferResponse, read by the generated messages of both."""

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tfs_proxy.values.errors import UpstreamError
from tfs_proxy.wire.protos import PredictResponse, TensorProto
from tfs_proxy.wire.protos.open_inference import InferParameter, ModelInferResponse
from tfs_proxy.wire.protos.predict import model_spec, response_bytes
from tfs_proxy.worker.router.forwarding import AskedModel
from tfs_proxy.worker.router.open_inference.infer_answer import infer_answer
from tfs_proxy.worker.router.open_inference.infer_request import TranslatedRequest

KINDS = {
    "BOOL": np.bool_,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}


def asked(outputs: tuple[str, ...] = ()) -> TranslatedRequest:
    """A request with a parameter of the client's own."""
    own = InferParameter(string_param="own")
    return TranslatedRequest(AskedModel("m", label="l"), b"", "id-1", outputs, {"mine": own})


def answer(message: bytes, outputs: tuple[str, ...] = ()) -> ModelInferResponse:
    return ModelInferResponse.FromString(infer_answer(message, asked(outputs)))


@pytest.mark.parametrize("as_list", [True, False])
@pytest.mark.parametrize(("datatype", "kind"), KINDS.items())
def test_every_datatype_keeps_its_bits(datatype: str, kind: type, *, as_list: bool) -> None:
    arrays: list[npt.NDArray[Any]] = [np.array([[0, 1, 1]], kind), np.array(1, kind), np.empty((0, 2), kind)]
    for array in arrays:
        got = answer(response_bytes(model_spec("m", 7), {"y": array}, as_list=as_list))
        (output,) = got.outputs
        assert (output.datatype, tuple(output.shape)) == (datatype, array.shape)
        assert list(got.raw_output_contents) == [array.tobytes()]


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


def test_strings_have_their_lengths() -> None:
    """Empty strings, and any byte."""
    strings = np.array([b"", b"\x00\xff", b"abc"], object)

    got = answer(response_bytes(model_spec("m", 7), {"y": strings}))

    assert got.outputs[0].datatype == "BYTES"
    assert got.raw_output_contents[0] == b"".join(struct.pack("<I", len(one)) + one for one in strings)


def test_id_parameters_version_and_the_order_of_outputs() -> None:
    """The version is the one that answered, the outputs are in the order of the request."""
    message = response_bytes(
        model_spec("m", 7), {name: np.array([value], np.int32) for value, name in enumerate("abc")}
    )

    got = answer(message, ("c", "a"))

    assert (got.model_name, got.model_version, got.id) == ("m", "7", "id-1")
    assert got.parameters["mine"].string_param == "own"
    assert [output.name for output in got.outputs] == ["c", "a"]
    assert list(got.raw_output_contents) == [b"\x02\x00\x00\x00", b"\x00\x00\x00\x00"]
    assert [output.name for output in answer(message).outputs] == ["a", "b", "c"]


@pytest.mark.parametrize("message", [b"\xff", b"\x0a\x01\xff", b"\x0a\x03\x12\x01\x08"])
def test_an_unreadable_answer_is_the_model_servers_mistake(message: bytes) -> None:
    """The error is an UpstreamError."""
    with pytest.raises(UpstreamError):
        infer_answer(message, asked())


def test_a_type_that_the_protocol_lacks_is_named() -> None:
    """Complex numbers have no datatype."""
    outputs: dict[str, Any] = {"y": np.array([1j], np.complex64)}
    with pytest.raises(UpstreamError, match='"y" is DT_COMPLEX64'):
        infer_answer(response_bytes(model_spec("m", 7), outputs), asked())


def test_a_list_that_is_cut_short_repeats_its_last_value() -> None:
    response = PredictResponse()
    response.outputs["y"].CopyFrom(TensorProto(dtype="DT_FLOAT", float_val=[2.0]))
    response.outputs["y"].tensor_shape.dim.add(size=3)

    got = answer(response.SerializeToString())

    assert got.raw_output_contents[0] == np.full(3, 2.0, np.float32).tobytes()
