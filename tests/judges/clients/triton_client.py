"""Triton's four clients behind one face, and the arrays that they send to the model `echo`."""

import importlib
import inspect

import numpy as np
from ml_dtypes import bfloat16
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

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


class Client:
    """One of Triton's four clients, awaited whether it is asynchronous or not."""

    def __init__(self, protocol, address, **options):
        self.protocol, self.address = protocol, address
        self.module = importlib.import_module(f"tritonclient.{protocol}")
        self.client = self.module.InferenceServerClient(address, **options)

    @property
    def is_http(self):
        return self.protocol.startswith("http")

    async def call(self, name, *words, **more):
        answer = getattr(self.client, name)(*words, **more)
        return await answer if inspect.isawaitable(answer) else answer

    async def told(self, name, *words):
        """An answer that is a document, whichever protocol it came over."""
        return await self.call(name, *words, **({} if self.is_http else {"as_json": True}))

    def tensor(self, name, array, binary=True):
        given = self.module.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        return given.set_data_from_numpy(array, **({"binary_data": binary} if self.is_http else {}))

    def output(self, name, binary=True, **more):
        return self.module.InferRequestedOutput(
            name, **({"binary_data": binary} if self.is_http else {}), **more
        )

    async def echoed(self, array, sent_binary=True, answered_binary=True, **more):
        """The array that the model gives back, as it was and as it came."""
        signature = SIGNATURES[np_to_triton_dtype(array.dtype)]
        result = await self.call(
            "infer",
            "echo",
            [self.tensor("x", array, sent_binary)],
            outputs=[self.output("y", answered_binary)],
            parameters={"signature": signature},
            **more,
        )
        return {"sent": described(array), "received": described(result.as_numpy("y"))}

    async def refused(self, name, *words, **more):
        try:
            answer = await self.call(name, *words, **more)
        except InferenceServerException as error:
            return {"status": error.status(), "message": error.message()}
        return {"answered": str(answer)}
