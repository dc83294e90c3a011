"""Batches from typed arrays by name: for npy, npz, tf.Example and recordio-protobuf.

Values are converted if nothing is lost but precision: any number may become a float, whole
numbers may become narrower ones if they fit. All else is refused, as in `serving_json.columns`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from tfs_proxy.data.shapes import fits, fitted
from tfs_proxy.values.batch import Batch
from tfs_proxy.values.errors import BadInput, WrongType, from_client
from tfs_proxy.values.memory import MemoryBudget
from tfs_proxy.values.signature import Signature, TensorSpec
from tfs_proxy.wire.dtypes import Kind, array_type

_TAKEN = {
    "f": (Kind.FLOAT.value, "fiu"),
    "c": (Kind.FLOAT.value, "fiuc"),
    "i": (Kind.INTEGER.value, "iu"),
    "u": (Kind.INTEGER.value, "iu"),
    "b": (Kind.BOOL.value, "b"),
    "O": (Kind.STRING.value, "O"),
}
"""Kinds of arrays that an input takes, and words for them, by the kind of its numpy type."""


def batch_of_arrays(
    arrays: Mapping[str, npt.NDArray[Any]], signature: Signature, budget: MemoryBudget
) -> Batch:
    """Make a batch of arrays by input name, ``[records, ...]``; if there is one input any name does.

    An array of one dimension less than the signature wants, but for that of its shape, is one
    record. Raises BadInput for other names than the signature's, for types that don't fit, and
    if the inputs differ in their records.
    """
    arrays = signature.by_alias(arrays)
    if len(signature.inputs) == len(arrays) == 1:
        arrays = dict(zip(signature.inputs, arrays.values(), strict=True))
    takes = f"the model takes {', '.join(sorted(signature.inputs)) or 'none'}"
    for name in sorted(arrays.keys() - signature.inputs.keys()):
        raise BadInput(f'The body has an array "{from_client(name[:100])}"; {takes}.', (name,))
    for name in sorted(signature.inputs.keys() - arrays.keys()):
        raise BadInput(f'The body has no array "{name}"; {takes}.', (name,))
    for name, spec in signature.inputs.items():
        itemsize = array_type(spec).itemsize
        is_wider = itemsize > arrays[name].itemsize
        # Once in the message to the model server, and once before if it is converted.
        budget.take(arrays[name].size * itemsize * (1 + is_wider), f'Input "{name}"')
    inputs = {}
    for name, spec in signature.inputs.items():
        array = typed(arrays[name], spec, f'Input "{name}"')
        is_one_record = not array.ndim or (spec.shape is not None and fits(array.shape, spec.shape[1:]))
        inputs[name] = array[None] if is_one_record else array
    lengths = {name: len(array) for name, array in inputs.items()}
    if len(set(lengths.values())) != 1:
        counts = ", ".join(f'"{name}" has {length}' for name, length in lengths.items())
        raise BadInput(f"The inputs have different numbers of records: {counts or 'there are none'}.")
    records = next(iter(lengths.values()))
    if not records:
        raise BadInput("The body has no records.")
    return fitted(Batch(inputs, records), signature)


def typed(array: npt.NDArray[Any], spec: TensorSpec, subject: str) -> npt.NDArray[Any]:
    """Convert an array to the signature's dtype; raises BadInput (or WrongType) about ``subject``."""
    dtype = array_type(spec)
    takes, taken = _TAKEN[dtype.kind]
    if array.dtype.kind not in taken:
        what = "strings" if array.dtype.kind in "OSU" else array.dtype.newbyteorder("=").name
        raise WrongType(f"{subject} is {what}, but {spec.dtype} takes {takes}.", (spec.name,))
    if dtype.kind in "iu" and array.size and array.dtype != dtype:
        limits = np.iinfo(dtype)
        low = int(array.min())
        high = int(array.max())
        if low < limits.min or high > limits.max:
            odd = low if low < limits.min else high
            text = f"{subject} has {from_client(odd)}, which is out of the range of {spec.dtype}."
            raise BadInput(text, (spec.name,))
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, dtype).reshape(array.shape)


def writable(batch: Batch) -> Batch:
    """Copy arrays that share the body's memory: scripts may change them in place."""
    inputs: dict[str, npt.NDArray[Any]] = {
        name: array if array.flags.writeable else array.copy() for name, array in batch.inputs.items()
    }
    return replace(batch, inputs=inputs)
