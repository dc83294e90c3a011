"""Tensors that are no records, in TF Serving's JSON."""

import json
from typing import Any

import numpy as np
import pytest

from tfs_proxy.data.serving_json.requests import named_signature, request_body
from tfs_proxy.values.batch import Batch


@pytest.mark.parametrize(
    ("inputs", "records", "form"),
    [
        ({"x": np.array(3)}, 1, {"inputs": {"x": 3}}),
        ({"x": np.zeros((2, 1)), "n": np.array(4)}, 1, {"inputs": {"x": [[0.0], [0.0]], "n": 4}}),
        ({"x": np.zeros(2), "y": np.zeros(1)}, 1, {"inputs": {"x": [0.0, 0.0], "y": [0.0]}}),
        ({"x": np.zeros(2)}, 2, {"instances": [0.0, 0.0]}),
    ],
)
def test_column_form(inputs: dict[str, Any], records: int, form: Any) -> None:
    """Scalars and inputs of different lengths go in column form, records in row form."""
    assert json.loads(request_body(Batch(inputs, records), None)) == form


@pytest.mark.parametrize(
    ("body", "name"),
    [(b'{"signature_name": "a", "inputs": 1}', "a"), (b"{}", None), (b"1,2", None), (b"[1]", None)],
)
def test_named_signature(body: bytes, name: str | None) -> None:
    """The name that a body asks for, if it is TF Serving's JSON at all."""
    assert named_signature(body) == name
