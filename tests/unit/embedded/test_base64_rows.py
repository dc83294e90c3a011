"""Rows of base64 read in one go, against the general reader of predict bodies."""

import json
import re
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.embedded.core.servable import Tensor
from tfs_proxy.embedded.errors import ServingError, invalid
from tfs_proxy.embedded.rest.json import predict as json_predict
from tfs_proxy.memory import MemoryBudget

FLOAT, STRING = 1, 7
LARGE = 5000

texts = st.one_of(
    st.binary(max_size=20).map(lambda value: b64encode(value).decode()),
    st.sampled_from(["YQ", "YQ==", "Y Q==", "YQ=.", "Y\\/==", "é", "A", "YWI=YWI=", "\\u0041AAA", "-_-_"]),
)
rows = st.builds(
    lambda text, form: form % text,
    texts,
    st.sampled_from(
        [
            '{"b64": "%s"}',
            '{"b64": "%s"}',
            '{ "b64":"%s"} ',
            '{"x": {"b64": "%s"}}',
            '{"x" :{"b64": "%s"} }',
            '{"y": {"b64": "%s"}}',
            '{"x": "%s"}',
            '["%s"]',
            '{"b64": "%s", "a": 1}',
            '{"b64": "%s"}}',
        ]
    ),
)
bodies = st.builds(
    lambda form, found: form % ",".join(found),
    st.sampled_from(
        [
            '{"instances": [%s]}',
            '{"instances": [%s]}',
            '{"signature_name": "s", "instances": [%s]}',
            '{"instances": [%s], "signature_name": "other"}',
            '{"inputs": [%s]}',
            '{"instances": [%s]',
            '{"instances": [%s],}',
        ]
    ),
    st.one_of(
        st.lists(rows, max_size=4),
        st.builds(lambda row, count: [row] * count, rows, st.integers(1, 3)),
    ),
)


def read(body: bytes, data_type: int) -> tuple[Any, ...] | str:
    """What a body means to a model with one input, or what it is refused with."""

    def inputs_of(name: str) -> dict[str, Tensor]:
        if name == "other":
            raise invalid("no such signature")
        return {"x": Tensor("x", "x:0", data_type)}

    try:
        call = json_predict.decode(body, inputs_of, MemoryBudget())
    except ServingError as error:
        return re.sub(r"offset: [0-9]+", "offset", error.text)
    return call.signature, call.by_row, {name: array.tolist() for name, array in call.arrays.items()}


@given(bodies, st.sampled_from([STRING, STRING, FLOAT]))
def test_large_bodies_are_read_as_small_ones(body: str, data_type: int) -> None:
    """The same arrays and refusals, whichever reader has a look at the body first."""
    raw = body.encode()
    assert read(raw + b" " * LARGE, data_type) == read(raw, data_type)


@pytest.mark.parametrize("form", ['{"b64": "%s"}', '{"x": {"b64": "%s"}}'])
def test_photographs_need_no_other_reader(form: str) -> None:
    """The rows' bytes come out as they were, in the order of the rows."""
    pictures = [bytes(range(256)) * count for count in (20, 21, 22)]
    listed = ",".join(form % b64encode(picture).decode() for picture in pictures)
    body = f'{{"instances": [{listed}]}}'.encode()
    call = json_predict.decode_at_once(body, lambda _: {"x": Tensor("x", "x:0", STRING)}, MemoryBudget())
    assert call is not None
    assert call.arrays["x"].tolist() == pictures
    assert json.loads(body)["instances"]
