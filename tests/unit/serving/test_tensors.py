"""Tensors from a script, by the signature of the model."""

from typing import Any

import numpy as np
import pytest

from support.signatures import Shape, signature_of
from tfs_proxy.serving.bodies import as_batch
from tfs_proxy.values.errors import BadInput, ScriptFailure


def converted_by(spec: str | tuple[str, Shape], value: Any) -> Any:
    return as_batch({"x": value}, signature_of(x=spec), "here").inputs["x"]


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (np.array([1.5]), "FLOAT", np.float32),
        ([1, 2], "FLOAT", np.float32),
        ([1, 2], "INT32", np.int32),
        (np.array([1, 2]), "UINT8", np.uint8),
        (7, "INT64", np.int64),
        ([], "INT32", np.int32),
        ([True], "BOOL", np.bool_),
        (np.array([1.5], np.float32), "HALF", np.float16),
        ([0.5, 2**70], "FLOAT", np.float32),
        (np.array([1, 2], object), "INT8", np.int8),
    ],
)
def test_dtypes_become_the_signatures(value: Any, dtype: str, expected: type) -> None:
    """Numbers are converted where nothing but precision can be lost."""
    converted = converted_by(f"DT_{dtype}", value)

    assert converted.dtype == expected
    assert converted.tolist() == np.asarray(value).tolist()


@pytest.mark.parametrize(
    ("value", "dtype", "says"),
    [
        ([1.5], "INT32", "is .*, but DT_INT32 takes whole numbers"),
        (np.array([1.5], ">f8"), "INT32", "is float64, but DT_INT32 takes whole numbers"),
        ([0.5, 2**70], "INT64", "is float64, but DT_INT64 takes whole numbers"),
        (["a"], "FLOAT", "is strings, but DT_FLOAT takes numbers"),
        ([1], "BOOL", "is .*, but DT_BOOL"),
        ([True], "FLOAT", "is .*, but DT_FLOAT"),
        (np.array([2]), "STRING", "is int64, but DT_STRING is needed: pass bytes or str"),
        (np.array([1j]), "FLOAT", "is .*, but DT_FLOAT"),
        (np.array(["2024-01-01"], "M8"), "INT64", "is .*, but DT_INT64"),
        (np.array([1, "a"], object), "FLOAT", "is .*, but DT_FLOAT"),
    ],
)
def test_what_would_be_lost_is_refused(value: Any, dtype: str, says: str) -> None:
    """The message names the place, the input and both dtypes."""
    with pytest.raises(ScriptFailure, match=f"here: input 'x' {says}"):
        converted_by(f"DT_{dtype}", value)


@pytest.mark.parametrize(
    ("number", "dtype"),
    [(300, "DT_UINT8"), (10**20, "DT_INT64"), (10**400, "DT_INT64"), (10**400, "DT_FLOAT")],
)
def test_a_number_that_is_too_large_is_the_bodys(number: int, dtype: str) -> None:
    """Most come from a body as they are: a client can't make a script fail with one."""
    with pytest.raises(BadInput, match=f"here: input 'x' has .* out of the range of {dtype}"):
        converted_by(dtype, [1, number])


@pytest.mark.parametrize(
    ("value", "shape", "expected"),
    [
        (b"a\0", (None,), [b"a\0"]),
        (b"a", (), b"a"),
        (b"a", None, [b"a"]),
        ("é", (None,), ["é".encode()]),
        ([b"a\0", b"b"], (None,), [b"a\0", b"b"]),
        ([b"a", b"b"], (None, 1), [[b"a"], [b"b"]]),
        ([b"a", b"b"], (None, 3), [b"a", b"b"]),
        (np.array(["a", "b"]), (None,), [b"a", b"b"]),
        (np.array([b"a"], object), (None, 1), [b"a"]),
        (bytearray(b"a"), (None,), [b"a"]),
    ],
)
def test_strings(value: Any, shape: Shape, expected: Any) -> None:
    """Bytes and text are records, filled up to the signature's rank unless an array says the shape."""
    assert converted_by(("DT_STRING", shape), value).tolist() == expected


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"z": 1}, r"'z' is not an input of signature serving_default \(x, y\)"),
        ({"x": 1}, "the input 'y' of signature serving_default is missing"),
        (np.zeros(1), "one array can't feed .* x, y"),
        ({"x": [[1], [1, 2]], "y": b"a"}, "input 'x' is not an array"),
    ],
)
def test_what_fits_no_signature(inputs: Any, message: str) -> None:
    """Names and forms are checked before the model server is asked."""
    with pytest.raises(ScriptFailure, match=f"^here: .*{message}"):
        as_batch(inputs, signature_of(x="DT_FLOAT", y="DT_STRING"), "here")
