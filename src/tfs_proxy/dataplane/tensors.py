"""What a script hands over as tensors -> a `Batch` of the signature's dtypes: between script and upstream."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tfs_proxy.batch import BYTES, Batch
from tfs_proxy.errors import BadInput, ScriptFailure
from tfs_proxy.payload.arrays import typed
from tfs_proxy.signature import Signature, TensorSpec
from tfs_proxy.wire.dtypes import array_type

FORMS = "an array, or a dict of input names to arrays, bytes, or lists"


def as_batch(inputs: Any, signature: Signature, caller: str) -> Batch:
    """One array for a model of one input, or arrays, bytes, str, numbers and lists of them by input name.

    Arrays keep their shape; their dtype becomes the signature's if no value can be lost but in
    precision (int to float, float64 to float32). A str or bytes for an input of rank 1 or more is
    one record, and a list of them fills up with axes of size 1 to the signature's rank. Raises
    ScriptFailure, which names ``caller`` and the input.
    """
    named = _by_name(inputs, signature, caller)
    arrays = {name: _array(named[name], spec, caller) for name, spec in signature.inputs.items()}
    sizes = {len(array) if array.ndim else 1 for array in arrays.values()}
    return Batch(arrays, sizes.pop() if len(sizes) == 1 else 1)


def _by_name(inputs: Any, signature: Signature, caller: str) -> Mapping[str, Any]:
    names = ", ".join(signature.inputs) or "none"
    if not isinstance(inputs, Mapping):
        if len(signature.inputs) != 1:
            raise ScriptFailure(
                f"{caller}: one array can't feed signature {signature.name}, whose inputs are {names}: "
                "pass a dict of them"
            )
        return dict.fromkeys(signature.inputs, inputs)
    for name in inputs:
        if name not in signature.inputs:
            hint = ": return TensorFlow Serving's JSON as str" if name in {"instances", "inputs"} else ""
            raise ScriptFailure(
                f"{caller}: {name!r} is not an input of signature {signature.name} ({names}){hint}"
            )
    missing = [name for name in signature.inputs if name not in inputs]
    if missing:
        raise ScriptFailure(f"{caller}: the input {missing[0]!r} of signature {signature.name} is missing")
    return inputs


def _array(value: Any, spec: TensorSpec, caller: str) -> npt.NDArray[Any]:
    subject = f"{caller}: input {spec.name!r}"
    dtype = array_type(spec)
    if dtype == BYTES:
        return _strings(value, spec, subject)
    try:
        array = np.asarray(value)
        if array.dtype == dtype:
            return array
        # An empty list is float64 to numpy, whatever it is meant to be.
        return typed(array, spec, subject) if array.size else array.astype(dtype)
    except BadInput as error:
        raise ScriptFailure(str(error)) from None
    except ValueError as error:
        raise ScriptFailure(f"{subject} is not an array: {error}") from None


def _strings(value: Any, spec: TensorSpec, subject: str) -> npt.NDArray[Any]:
    if isinstance(value, (bytes, bytearray, memoryview, str)):
        one = _objects([value], subject)
        return one.reshape(()) if spec.shape == () else _filled_up(one, spec)
    # As objects: numpy would strip zeros at the end of bytes.
    nested = value if isinstance(value, np.ndarray) else np.array(value, BYTES)
    if nested.dtype.kind not in "OSU":
        raise ScriptFailure(f"{subject} is {nested.dtype}, but {spec.dtype} is needed: pass bytes or str")
    array = _objects(nested.ravel().tolist(), subject).reshape(nested.shape)
    return array if isinstance(value, np.ndarray) else _filled_up(array, spec)


def _objects(values: list[Any], subject: str) -> npt.NDArray[Any]:
    for value in values:
        if not isinstance(value, str | bytes | bytearray | memoryview):
            raise ScriptFailure(
                f"{subject} is {type(value).__name__}, but DT_STRING is needed: pass bytes or str"
            )
    return np.array([value.encode() if isinstance(value, str) else bytes(value) for value in values], BYTES)


def _filled_up(array: npt.NDArray[Any], spec: TensorSpec) -> npt.NDArray[Any]:
    """``[n]`` as ``[n, 1, ...]`` if that is the signature's rank, as Keras gives string inputs."""
    if spec.shape is None or len(spec.shape) <= array.ndim:
        return array
    added = spec.shape[array.ndim :]
    return array.reshape(array.shape + (1,) * len(added)) if set(added) <= {1, None} else array
