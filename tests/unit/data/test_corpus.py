"""Every body of tests/corpus/bodies.json decodes to what stands beside it there, or is refused so."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tfs_proxy.data.registry import decode, parse_media_type
from tfs_proxy.values.errors import BadInput
from tfs_proxy.values.signature import PREDICT_METHOD, Signature, TensorSpec
from tfs_proxy.wire.dtypes import DTYPES

CORPUS = json.loads((Path(__file__).parents[2] / "corpus" / "bodies.json").read_text())
TENSORS = {
    "x": TensorSpec("x", "DT_FLOAT", (None,)),
    "x1": TensorSpec("x1", "DT_FLOAT", (None, 1)),
    "a": TensorSpec("a", "DT_FLOAT", (None, 2)),
    "b": TensorSpec("b", "DT_INT64", (None,)),
    "b1": TensorSpec("b1", "DT_INT32", (None,)),
    "byte": TensorSpec("byte", "DT_UINT8", (None,)),
    "flag": TensorSpec("flag", "DT_BOOL", None),
    "half": TensorSpec("half", "DT_HALF", (None,)),
    "text": TensorSpec("text", "DT_STRING", (None,)),
    "complex": TensorSpec("complex", "DT_COMPLEX64", (None,)),
}


def _named(rows: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(row, id=row["name"]) for row in rows]


def _signature(names: str) -> Signature:
    inputs = {name: TENSORS[name] for name in names.split(",")}
    return Signature("serving_default", PREDICT_METHOD, inputs, {})


def _as_bytes(nested: Any) -> Any:
    return [_as_bytes(value) for value in nested] if isinstance(nested, list) else nested.encode()


@pytest.mark.parametrize("row", _named([row for row in CORPUS if "error" not in row]))
def test_body_decodes(row: dict[str, Any]) -> None:
    """A body becomes arrays of the signature's dtypes and as many records as the client sent."""
    body = row["body"].encode(row.get("charset", "utf-8"))
    batch = decode(body, parse_media_type(row["content_type"]), _signature(row["signature"]))
    assert batch.records == row["records"]
    for name, values in row.get("inputs", {}).items():
        with np.errstate(over="ignore"):
            expected: npt.NDArray[Any] = np.array(values, DTYPES[TENSORS[name].dtype][1])
        assert batch.inputs[name].dtype == expected.dtype
        np.testing.assert_array_equal(batch.inputs[name], expected)
    for name, values in row.get("text", {}).items():
        assert batch.inputs[name].tolist() == _as_bytes(values)


@pytest.mark.parametrize("row", _named([row for row in CORPUS if "error" in row]))
def test_body_is_refused(row: dict[str, Any]) -> None:
    """A body that can't be read is refused with a sentence that says where."""
    with pytest.raises(BadInput) as refused:
        decode(row["body"].encode(), parse_media_type(row["content_type"]), _signature(row["signature"]))
    assert row["error"] in str(refused.value)
    assert len(str(refused.value)) < 400
