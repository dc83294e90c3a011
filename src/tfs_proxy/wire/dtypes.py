"""TensorFlow's names of types, and the numpy type in which each travels through a `Batch`."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np

from tfs_proxy.batch import BYTES
from tfs_proxy.errors import BadInput
from tfs_proxy.signature import Signature, TensorSpec

MAX_DIMENSIONS = 64
"""The most dimensions that a numpy array has."""


class Kind(Enum):
    """What the values of a dtype look like in a text format."""

    FLOAT = "numbers"
    INTEGER = "whole numbers"
    BOOL = "true or false"
    STRING = "strings"


DTYPES: Mapping[str, tuple[Kind, np.dtype[Any]]] = {
    "DT_HALF": (Kind.FLOAT, np.dtype(np.float16)),
    "DT_BFLOAT16": (Kind.FLOAT, np.dtype(np.float32)),
    "DT_FLOAT": (Kind.FLOAT, np.dtype(np.float32)),
    "DT_DOUBLE": (Kind.FLOAT, np.dtype(np.float64)),
    "DT_INT8": (Kind.INTEGER, np.dtype(np.int8)),
    "DT_INT16": (Kind.INTEGER, np.dtype(np.int16)),
    "DT_INT32": (Kind.INTEGER, np.dtype(np.int32)),
    "DT_INT64": (Kind.INTEGER, np.dtype(np.int64)),
    "DT_UINT8": (Kind.INTEGER, np.dtype(np.uint8)),
    "DT_UINT16": (Kind.INTEGER, np.dtype(np.uint16)),
    "DT_UINT32": (Kind.INTEGER, np.dtype(np.uint32)),
    "DT_UINT64": (Kind.INTEGER, np.dtype(np.uint64)),
    "DT_BOOL": (Kind.BOOL, np.dtype(np.bool_)),
    "DT_STRING": (Kind.STRING, BYTES),
}


_WHOLE_TYPES = {f"DT_{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)} - {"DT_UINT16"}
JSON_TYPES = _WHOLE_TYPES | {"DT_FLOAT", "DT_DOUBLE", "DT_BOOL", "DT_STRING"}
"""The types that TF Serving's JSON has, both ways (contract 3.1)."""


def has_json(signature: Signature) -> bool:
    """Whether TF Serving's JSON knows all types of a signature."""
    specs = (*signature.inputs.values(), *signature.outputs.values())
    return all(spec.dtype in JSON_TYPES for spec in specs)


def dtype_of(spec: TensorSpec) -> tuple[Kind, np.dtype[Any]]:
    """The kind and numpy dtype of a tensor; raises BadInput for one that text can't carry."""
    known = DTYPES.get(spec.dtype)
    if known is None:
        raise BadInput(f'"{spec.name}" is {spec.dtype}, which neither JSON nor CSV can carry.')
    return known
