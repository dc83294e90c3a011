"""The arrays that Triton's clients send to the model `echo`, and how one is printed."""

import numpy as np
from ml_dtypes import bfloat16

SIGNATURES = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "BF16": "bfloat16",
    "FP32": "float32",
    "FP64": "float64",
    "BYTES": "string",
}
"""Those of the model `echo`, by the datatype that each gives back."""


def described(array):
    if array.dtype == object:
        texts = (value.encode() if isinstance(value, str) else value for value in array.flat)
        return {"dtype": "object", "shape": list(array.shape), "elements": [text.hex() for text in texts]}
    elements = array.tobytes().hex()
    return {"dtype": str(array.dtype), "shape": list(array.shape), "elements": elements}


def limits(datatype):
    """Six elements of a datatype, its smallest and largest among them."""
    if datatype == "BYTES":
        return np.array([b"", b"\x00", b"plain", b"\xff\xfe\xfd", "äö€".encode(), b"x" * 300], object)
    if datatype == "BOOL":
        return np.array([True, False, True, True, False, False])
    if datatype == "BF16":
        return np.array([0.0, -0.0, 1.5, 3.0e38, float("-inf"), float("nan")], bfloat16)
    dtype = np.dtype(SIGNATURES[datatype])
    if dtype.kind == "f":
        most = np.finfo(dtype)
        return np.array([most.min, most.max, most.tiny, -0.0, np.inf, np.nan], dtype)
    most = np.iinfo(dtype)
    return np.array([most.min, most.max, 0, 1, most.max // 3, most.max - 1], dtype)


def in_json(datatype):
    elements = limits(datatype)
    if datatype == "BYTES":
        return np.array([b"", b"plain", "äö€".encode(), b'"\\\n'], object)
    return elements[:4] if elements.dtype.kind == "f" else elements
