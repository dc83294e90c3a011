"""What a script hands over as tensors -> a `Batch` of the signature's dtypes: between script and upstream."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tfs_proxy.batch import BYTES, Batch
from tfs_proxy.errors import ScriptFailure
from tfs_proxy.signature import Signature, TensorSpec
from tfs_proxy.wire.dtypes import Kind, dtype_of

FORMS = "an array, or a dict of input names to arrays, bytes, or lists"


def as_batch(inputs: Any, signature: Signature, place: str) -> Batch:
    """One array for a model of one input, or arrays, bytes, str, numbers and lists of them by input name.

    Arrays keep their shape; their dtype becomes the signature's where no value can be lost but in
    precision (int to float, float64 to float32). A str or bytes for an input of rank 1 or more is
    one record, and a list of them fills up with axes of size 1 to the signature's rank. Raises
    ScriptFailure, which names ``place`` and the input.
    """
    named = _by_name(inputs, signature, place)
    arrays = {name: _array(named[name], spec, place) for name, spec in signature.inputs.items()}
    sizes = {len(array) if array.ndim else 1 for array in arrays.values()}
    return Batch(arrays, sizes.pop() if len(sizes) == 1 else 1)


def _by_name(inputs: Any, signature: Signature, place: str) -> Mapping[str, Any]:
    names = ", ".join(signature.inputs) or "none"
    if not isinstance(inputs, Mapping):
        if len(signature.inputs) != 1:
            raise ScriptFailure(
                f"{place}: one array can't feed signature {signature.name}, whose inputs are {names}: "
                "pass a dict of them"
            )
        return dict.fromkeys(signature.inputs, inputs)
    for name in inputs:
        if name not in signature.inputs:
            hint = ": return TensorFlow Serving's JSON as str" if name in {"instances", "inputs"} else ""
            raise ScriptFailure(
                f"{place}: {name!r} is not an input of signature {signature.name} ({names}){hint}"
            )
    missing = [name for name in signature.inputs if name not in inputs]
    if missing:
        raise ScriptFailure(f"{place}: the input {missing[0]!r} of signature {signature.name} is missing")
    return inputs


def _array(value: Any, spec: TensorSpec, place: str) -> npt.NDArray[Any]:
    kind, dtype = dtype_of(spec)
    where = f"{place}: input {spec.name!r}"
    if kind is Kind.STRING:
        return _strings(value, spec, where)
    try:
        given = np.asarray(value)
    except ValueError as error:
        raise ScriptFailure(f"{where} is not an array: {error}") from None
    if given.dtype == dtype:
        return given
    # An empty list is float64 to numpy, whatever it is meant to be.
    if given.size and not _fits(given, dtype):
        raise ScriptFailure(f"{where} is {_described(given, dtype, spec)}")
    return given.astype(dtype)


def _described(given: npt.NDArray[Any], wanted: np.dtype[Any], spec: TensorSpec) -> str:
    """An array's dtype against the signature's, and what to do about it."""
    own = "strings" if given.dtype.kind in "SU" else given.dtype.newbyteorder("=").name
    if given.dtype.kind in "iu" and wanted.kind in "iu":
        return f"{own} with values of {given.min()} to {given.max()}, but {spec.dtype} is needed"
    return f"{own}, but {spec.dtype} is needed: convert it with astype"


def _fits(given: npt.NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Whether values of one dtype may become another: whole numbers by value, others by kind."""
    if given.dtype.kind not in "biuf" or (given.dtype.kind == "b") != (dtype.kind == "b"):
        return False
    if dtype.kind in "iu" and given.dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return bool(given.min() >= limits.min and given.max() <= limits.max)
    return np.can_cast(given.dtype, dtype, "same_kind")


def _strings(value: Any, spec: TensorSpec, where: str) -> npt.NDArray[Any]:
    if isinstance(value, (bytes, bytearray, memoryview, str)):
        one = _objects([value], where)
        return one.reshape(()) if spec.shape == () else _filled_up(one, spec)
    given = value if isinstance(value, np.ndarray) else _object_array(value)
    if given.dtype.kind not in "OSU":
        raise ScriptFailure(f"{where} is {given.dtype}, but {spec.dtype} is needed: pass bytes or str")
    array = _objects(given.ravel().tolist(), where).reshape(given.shape)
    return array if isinstance(value, np.ndarray) else _filled_up(array, spec)


def _object_array(values: Any) -> npt.NDArray[Any]:
    """Nested lists of bytes as an object array: numpy would strip trailing zeros of bytes."""
    return np.array(values, dtype=object)


def _objects(values: list[Any], where: str) -> npt.NDArray[Any]:
    array = np.empty(len(values), BYTES)
    for index, value in enumerate(values):
        match value:
            case bytes():
                array[index] = value
            case str():
                array[index] = value.encode()
            case bytearray() | memoryview():
                array[index] = bytes(value)
            case _:
                raise ScriptFailure(
                    f"{where} is {type(value).__name__}, but DT_STRING is needed: pass bytes or str"
                )
    return array


def _filled_up(array: npt.NDArray[Any], spec: TensorSpec) -> npt.NDArray[Any]:
    """``[n]`` as ``[n, 1, ...]`` where that is the signature's rank, as Keras gives string inputs."""
    if spec.shape is None or len(spec.shape) <= array.ndim:
        return array
    added = spec.shape[array.ndim :]
    return array.reshape(array.shape + (1,) * len(added)) if set(added) <= {1, None} else array
