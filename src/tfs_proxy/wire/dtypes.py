"""TensorFlow's names of types, and the numpy types that they have in a `Batch`."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np

from tfs_proxy.values.batch import BYTES
from tfs_proxy.values.errors import BadInput
from tfs_proxy.values.signature import Signature, TensorSpec
from tfs_proxy.wire.data_types import DataType

MAX_DIMENSIONS = 64


class Kind(Enum):
    """Forms of a dtype's values in text formats."""

    FLOAT = "numbers"
    INTEGER = "whole numbers"
    BOOL = "true or false"
    STRING = "strings"


NUMPY_TYPES: Mapping[int, np.dtype[Any]] = {
    DataType.DT_FLOAT: np.dtype(np.float32),
    DataType.DT_DOUBLE: np.dtype(np.float64),
    DataType.DT_INT32: np.dtype(np.int32),
    DataType.DT_UINT8: np.dtype(np.uint8),
    DataType.DT_INT16: np.dtype(np.int16),
    DataType.DT_INT8: np.dtype(np.int8),
    DataType.DT_STRING: BYTES,
    DataType.DT_COMPLEX64: np.dtype(np.complex64),
    DataType.DT_INT64: np.dtype(np.int64),
    DataType.DT_BOOL: np.dtype(np.bool_),
    DataType.DT_UINT16: np.dtype(np.uint16),
    DataType.DT_COMPLEX128: np.dtype(np.complex128),
    DataType.DT_HALF: np.dtype(np.float16),
    DataType.DT_UINT32: np.dtype(np.uint32),
    DataType.DT_UINT64: np.dtype(np.uint64),
}
"""Numpy types of all types that numpy has; strings are bytes objects."""

ARRAY_TYPES: Mapping[str, np.dtype[Any]] = {
    **{DataType(number).name: dtype for number, dtype in NUMPY_TYPES.items()},
    # numpy has no bfloat16: a `Batch` has float32 instead.
    "DT_BFLOAT16": np.dtype(np.float32),
}
"""Numpy types in a `Batch`, by TensorFlow's names."""

_KINDS = {"f": Kind.FLOAT, "i": Kind.INTEGER, "u": Kind.INTEGER, "b": Kind.BOOL, "O": Kind.STRING}
"""Forms of values in text, by the kind of a numpy type."""

DTYPES: Mapping[str, tuple[Kind, np.dtype[Any]]] = {
    name: (_KINDS[dtype.kind], dtype) for name, dtype in ARRAY_TYPES.items() if dtype.kind in _KINDS
}
"""Kind and numpy type, by TensorFlow's name, of the types that text can carry."""

JSON_TYPES = DTYPES.keys() - {"DT_HALF", "DT_BFLOAT16", "DT_UINT16"}
"""Types that TF Serving's JSON reads and writes (docs/reference/tensorflow-serving.md)."""


def has_json(signature: Signature) -> bool:
    """True if TF Serving's JSON has all types of the signature."""
    specs = (*signature.inputs.values(), *signature.outputs.values())
    return all(spec.dtype in JSON_TYPES for spec in specs)


def dtype_of(spec: TensorSpec) -> tuple[Kind, np.dtype[Any]]:
    """Kind and numpy type of a tensor's values in text. Raises BadInput for a type that text can't carry."""
    known = DTYPES.get(spec.dtype)
    if known is None:
        raise BadInput(f'"{spec.name}" is {spec.dtype}, which neither JSON nor CSV can carry.')
    return known


def array_type(spec: TensorSpec) -> np.dtype[Any]:
    """The numpy dtype of a tensor that arrays carry, complex ones too. Raises BadInput for any other."""
    dtype = ARRAY_TYPES.get(spec.dtype)
    return dtype_of(spec)[1] if dtype is None else dtype
