"""TF Serving's JSON: the requests written, the answers and metadata read."""

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tfs_proxy.data.serving_json.requests import read_metadata, read_outputs, request_body, with_signature
from tfs_proxy.values.batch import Batch
from tfs_proxy.values.errors import BadInput, UpstreamError
from tfs_proxy.values.signature import PREDICT_METHOD, Signature, TensorSpec

NAN, INF = float("nan"), float("inf")


def _signature(**outputs: str) -> Signature:
    specs = {name: TensorSpec(name, dtype, None) for name, dtype in outputs.items()}
    return Signature("serving_default", PREDICT_METHOD, {}, specs)


@pytest.mark.parametrize(
    ("array", "instances"),
    [
        (np.array([NAN, INF, -INF, 0.1], np.float32), "[NaN,Infinity,-Infinity,0.1]"),
        (np.array([[[NAN, 1.5], [2, INF]]], np.float16), "[[[NaN,1.5],[2.0,Infinity]]]"),
        (np.arange(6.0).reshape(2, 3).T, "[[0.0,3.0],[1.0,4.0],[2.0,5.0]]"),
        (np.zeros((2, 0)), "[[],[]]"),
        (np.array([b"abc", b"\xff"], object), '[{"b64":"YWJj"},{"b64":"/w=="}]'),
    ],
)
def test_one_input_is_a_plain_list(array: npt.NDArray[Any], instances: str) -> None:
    """One input is written as instances without a name, every digit kept."""
    body = request_body(Batch({"x": array}, len(array)), None)
    assert body.decode() == f'{{"instances":{instances}}}'


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b' {"instances": [1]}', b' {"signature_name":"norm","instances": [1]}'),
        (b"{ }", b'{"signature_name":"norm" }'),
        (b'{"signature_name": "norm", "inputs": 1}', b'{"signature_name": "norm", "inputs": 1}'),
        (
            b'{"signature_name": "", "inputs": NaN}',
            b'{"signature_name":"norm","signature_name": "", "inputs": NaN}',
        ),
        (b"[1]", b"[1]"),
        (b"no json", b"no json"),
        (b"", b""),
        (b'{"signature_name": 1}', b'{"signature_name": 1}'),
    ],
)
def test_signature_is_spliced_in(body: bytes, expected: bytes) -> None:
    """A target's signature goes into an object without one; all else stays as it is."""
    assert with_signature(body, "norm") == expected
    assert with_signature(body, None) == body


def test_two_signatures_conflict() -> None:
    """A body and a header that name two signatures are the client's mistake, both named."""
    with pytest.raises(BadInput, match=r'"other".*"norm"'):
        with_signature(b'{"signature_name": "other", "instances": [1]}', "norm")


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[1]", b'{"results": []}', b'{"predictions": ["a"]}', b'{"predictions": 1}']
)
def test_unreadable_answers(body: bytes) -> None:
    """An answer that does not fit is the server's error, not the client's."""
    with pytest.raises(UpstreamError):
        read_outputs(body, _signature(y="DT_FLOAT"))


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'{"metadata": {"signature_def": {"signature_def": {"a": 1}}}}']
)
def test_unreadable_metadata(body: bytes) -> None:
    """Metadata of another shape is the server's error."""
    with pytest.raises(UpstreamError, match="metadata"):
        read_metadata(body)


@pytest.mark.parametrize(
    ("inputs", "records", "form"),
    [
        ({"x": np.zeros((2, 1)), "n": np.array(4)}, 1, {"inputs": {"x": [[0.0], [0.0]], "n": 4}}),
        ({"x": np.zeros(2), "y": np.zeros(1)}, 1, {"inputs": {"x": [0.0, 0.0], "y": [0.0]}}),
    ],
)
def test_column_form(inputs: dict[str, Any], records: int, form: Any) -> None:
    """Scalars and inputs of different lengths go in column form, records in row form."""
    assert json.loads(request_body(Batch(inputs, records), None)) == form


def test_bytes_that_are_no_utf8() -> None:
    """A string output that TF Serving wrote raw keeps its bytes."""
    assert read_outputs(b'{"predictions": ["\xff\xe9"]}', _signature(y="DT_STRING"))["y"].tolist() == [
        b"\xff\xe9"
    ]
