"""Decoding: what holds for every body, whichever way it goes."""

import csv
import io
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.signatures import floats, signature_of
from tfs_proxy.data.formats.form import parts_of
from tfs_proxy.data.registry import decode, decode_examples, names_with, parse_media_type
from tfs_proxy.data.serving_json.numbers import csv_array
from tfs_proxy.values.batch import Batch
from tfs_proxy.values.errors import BadInput, PayloadTooLarge, RequestError, UnsupportedMediaType
from tfs_proxy.values.memory import MemoryBudget
from tfs_proxy.values.signature import Signature
from tfs_proxy.wire.media_types import MediaType

JSON, LINES, CSV = map(parse_media_type, ("application/json", "application/jsonlines", "text/csv"))
DEEP = 100_000


FLOATS = floats()
DOUBLES = signature_of(x="DT_DOUBLE")
WHOLES = signature_of(x="DT_INT64")
TEXTS = signature_of(x="DT_STRING")
MIXED = signature_of(a="DT_FLOAT", b="DT_INT32", c="DT_STRING", d="DT_BOOL")
SIGNATURES = (FLOATS, WHOLES, TEXTS, MIXED)

rows = st.integers(1, 4).flatmap(
    lambda width: st.lists(
        st.lists(st.floats(allow_nan=False, width=64), min_size=width, max_size=width), min_size=1, max_size=6
    )
)
whole_rows = st.lists(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=2), min_size=1, max_size=6
)
text_rows = st.lists(
    st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=2, max_size=2),
    min_size=1,
    max_size=6,
)


def _values(batch: Batch) -> Any:
    return batch.inputs["x"].tolist()


@given(
    st.sampled_from(names_with(lambda row: row.decode)), st.sampled_from(SIGNATURES), st.binary(max_size=80)
)
def test_any_bytes_decode_or_are_refused(name: str, signature: Signature, body: bytes) -> None:
    """Random bytes raise nothing but a RequestError, whose text is printable UTF-8."""
    try:
        batch = decode(body, parse_media_type(name), signature)
    except RequestError as refused:
        str(refused).encode()
        return
    assert all(len(array) == batch.records for array in batch.inputs.values())


@given(whole_rows)
def test_whole_numbers_are_exact(values: list[list[int]]) -> None:
    """64-bit integers lose nothing in JSON, JSON lines and CSV."""
    lines = "\n".join(map(json.dumps, values)).encode()
    table = "\n".join(",".join(map(str, row)) for row in values).encode()
    assert _values(decode(json.dumps(values).encode(), JSON, WHOLES)) == values
    assert _values(decode(lines, LINES, WHOLES)) == values
    assert _values(decode(table, CSV, WHOLES)) == values


@given(rows)
def test_csv_numbers_come_back(values: list[list[float]]) -> None:
    """Floats in CSV keep every digit, quoted or not."""
    plain = "\n".join(",".join(map(repr, row)) for row in values).encode()
    quoted = "\n".join(",".join(f'" {number!r} "' for number in row) for row in values).encode()
    expected = [row[0] for row in values] if len(values[0]) == 1 else values
    assert _values(decode(plain, CSV, DOUBLES)) == expected
    assert _values(decode(quoted, CSV, DOUBLES)) == expected


@given(text_rows)
def test_csv_text_comes_back(values: list[list[str]]) -> None:
    """Any text that the csv module writes is read back the same, quotes and newlines included."""
    buffer = io.StringIO(newline="")
    csv.writer(buffer).writerows(values)
    expected = [[cell.encode() for cell in row] for row in values]
    assert _values(decode(buffer.getvalue().encode(), CSV, TEXTS)) == expected


@pytest.mark.parametrize("opening", [b"[", b'{"x":', b'[{"x":['])
def test_depth_is_no_weapon(opening: bytes) -> None:
    """A body that opens 100,000 levels is refused, not a crash."""
    with pytest.raises(BadInput, match="nests too deeply"):
        decode(opening * DEEP, JSON, FLOATS)


def test_depth_beyond_an_array() -> None:
    """Lists deeper than an array can be are refused, naming the input."""
    with pytest.raises(BadInput, match="deeper than 64"):
        decode(b"[" * 70 + b"1" + b"]" * 70, JSON, FLOATS)


@pytest.mark.parametrize("media_type", [JSON, LINES, CSV])
def test_invalid_utf8_names_the_byte(media_type: MediaType) -> None:
    with pytest.raises(BadInput, match="byte 2"):
        decode(b'"a\xff"', media_type, TEXTS)


def test_unknown_type_is_named_with_the_known() -> None:
    """415 says what was sent and what is read."""
    with pytest.raises(UnsupportedMediaType, match=r"application/x-unsupported.*application/json.*text/csv"):
        decode(b"", parse_media_type("application/x-unsupported"), FLOATS)
    with pytest.raises(UnsupportedMediaType, match="klingon"):
        decode(b"", parse_media_type("text/csv; charset=klingon"), FLOATS)
    with pytest.raises(UnsupportedMediaType, match="header=maybe"):
        decode(b"", parse_media_type("text/csv; header=maybe"), FLOATS)


def test_wrong_charset_is_the_clients_mistake() -> None:
    """A body that is not in the charset it claims is a 400."""
    with pytest.raises(BadInput, match="utf-16"):
        decode(b"1", parse_media_type("text/csv; charset=utf-16"), FLOATS)


def test_examples_are_objects() -> None:
    """Records for classify and regress are objects, one, in a list or a line each."""
    assert decode_examples(b'{"x": 1}', JSON).features == ({"x": 1},)
    assert decode_examples(b'[{"x": 1}, {"y": [2]}]', JSON).records == 2
    assert decode_examples(b'{"x": 1}\n{"x": 2}', LINES).records == 2
    for body in (b"[1]", b'[{"x": 1}, 2]', b"", b"5"):
        with pytest.raises(BadInput):
            decode_examples(body, JSON)


@given(
    st.sampled_from((FLOATS, DOUBLES, WHOLES, signature_of(x="DT_UINT8"))),
    st.text("0123456789+-.eE,\n\r \tnaNif", max_size=16),
)
def test_fast_and_slow_csv_agree(signature: Signature, text: str) -> None:
    spec = signature.inputs["x"]
    quick = csv_array(text.encode(), spec)
    if quick is not None:
        header = ("x," * quick.shape[1])[:-1] + "\n"
        slow = decode((header + text).encode(), parse_media_type("text/csv; header=present"), signature)
        np.testing.assert_array_equal(slow.inputs["x"].reshape(quick.shape), quick)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        (b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n' * 10_000, "has over 1000 parts"),
        (b"--x\r\nContent-Disposition: " + b"a" * 9000 + b"\r\n\r\n1\r\n", "incomplete body part headers"),
    ],
)
def test_a_form_of_too_many_or_endless_parts(parts: bytes, says: str) -> None:
    """Is refused, and so is one that takes more memory than its budget has."""
    with pytest.raises(BadInput, match=says):
        parts_of(parts + b"--x--\r\n", "multipart/form-data; boundary=x", MemoryBudget())
    with pytest.raises(PayloadTooLarge, match="The form needs"):
        parts_of(parts, "multipart/form-data; boundary=x", MemoryBudget(len(parts) - 1))
