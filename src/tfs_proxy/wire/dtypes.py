"""TensorFlow's names of types, and the numpy type in which each travels through a `Batch`."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np

from tfs_proxy.batch import BYTES
from tfs_proxy.errors import BadInput
from tfs_proxy.signature import Signature, TensorSpec
from tfs_proxy.wire.data_types import DataType

MAX_DIMENSIONS = 64
"""The most dimensions that a numpy array has."""


class Kind(Enum):
    """What the values of a dtype look like in a text format."""

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
"""What an array of each type looks like, for the types that numpy itself has; strings are bytes objects."""

ARRAY_TYPES: Mapping[str, np.dtype[Any]] = {
    **{DataType(number).name: dtype for number, dtype in NUMPY_TYPES.items()},
    # numpy has no bfloat16: it travels as float32.
    "DT_BFLOAT16": np.dtype(np.float32),
}
"""The numpy type of a `Batch`, by TensorFlow's name."""

_KINDS = {"f": Kind.FLOAT, "i": Kind.INTEGER, "u": Kind.INTEGER, "b": Kind.BOOL, "O": Kind.STRING}
"""What text can carry, by the kind of a numpy type."""

DTYPES: Mapping[str, tuple[Kind, np.dtype[Any]]] = {
    name: (_KINDS[dtype.kind], dtype) for name, dtype in ARRAY_TYPES.items() if dtype.kind in _KINDS
}
"""Kind and numpy type, by TensorFlow's name, of the types that text can carry."""

JSON_TYPES = DTYPES.keys() - {"DT_HALF", "DT_BFLOAT16", "DT_UINT16"}
"""The types that TF Serving's JSON has, both ways (docs/reference/tensorflow-serving.md)."""


def has_json(signature: Signature) -> bool:
    """Whether TF Serving's JSON knows all types of a signature."""
    specs = (*signature.inputs.values(), *signature.outputs.values())
    return all(spec.dtype in JSON_TYPES for spec in specs)


def dtype_of(spec: TensorSpec) -> tuple[Kind, np.dtype[Any]]:
    """The kind and numpy dtype of a tensor; raises BadInput for one that text cannot carry."""
    known = DTYPES.get(spec.dtype)
    if known is None:
        raise BadInput(f'"{spec.name}" is {spec.dtype}, which neither JSON nor CSV can carry.')
    return known


def array_type(spec: TensorSpec) -> np.dtype[Any]:
    """The numpy dtype of a tensor that arrays carry: complex too; raises BadInput for any other."""
    dtype = ARRAY_TYPES.get(spec.dtype)
    return dtype_of(spec)[1] if dtype is None else dtype
