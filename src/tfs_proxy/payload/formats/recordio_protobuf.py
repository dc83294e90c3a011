"""application/x-recordio-protobuf (SageMaker's Record in MXNet's RecordIO) -> `Batch` or `Examples`."""

import io
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from tfs_proxy.batch import Batch, Examples
from tfs_proxy.errors import BadInput
from tfs_proxy.memory import RECORD_BYTES, MemoryBudget
from tfs_proxy.payload.features import (
    Feature,
    Record,
    batch_of_features,
    examples_of_features,
    numbers_of,
    strings_of,
)
from tfs_proxy.payload.formats.framing import RECORDIO_MAGIC, recordio
from tfs_proxy.payload.shapes import is_possible
from tfs_proxy.protos import RecordIORecord
from tfs_proxy.signature import Signature

VALUES = "values"
"""The feature that stands for all of a record's values, in SageMaker's built-in algorithms."""

_DTYPES: dict[str, npt.DTypeLike] = {
    "float32_tensor": np.float32,
    "float64_tensor": np.float64,
    "int32_tensor": np.int32,
}
_MAX_DIMENSIONS = 32
_MAGIC = RECORDIO_MAGIC.to_bytes(4, "little")


def decode_recordio(body: bytes, signature: Signature, budget: MemoryBudget) -> Batch:
    """Records for predict: features by input name; a model of one input takes ``values``, too.

    Sparse tensors (with keys) are filled up with zeros to the shape that they have to declare.
    Raises BadInput naming record and byte or feature, PayloadTooLarge if they fill more than the budget
    has left.
    """
    records = list(_records(body, budget))
    if len(signature.inputs) == 1:
        (name,) = signature.inputs
        records = [_renamed(record, name) for record in records]
    return batch_of_features(records, signature)


def examples_of_recordio(body: bytes, budget: MemoryBudget) -> Examples:
    """Records for classify and regress, which take features by their names."""
    return examples_of_features(list(_records(body, budget)), budget)


def _renamed(record: Record, name: str) -> Record:
    if name not in record and VALUES in record:
        return {**record, name: record[VALUES]}
    return record


def _records(body: bytes, budget: MemoryBudget) -> Iterator[Record]:
    for number, message in enumerate(_messages(body), 1):
        budget.take(RECORD_BYTES, f"Record {number}, with those before it,")
        yield {
            name: _feature(value, f'Record {number}, feature "{name}",', budget)
            for name, value in _features(message, number)
        }


def _features(message: RecordIORecord, number: int) -> list[tuple[str, Any]]:
    try:
        return list(message.features.items())
    except UnicodeDecodeError:
        raise BadInput(f"Record {number} has a feature whose name is not UTF-8.") from None


def _messages(body: bytes) -> Iterator[RecordIORecord]:
    if body and not body.startswith(_MAGIC):
        # NOTE: batch transform's SingleRecord strategy strips the framing (docs/reference/sagemaker.md).
        yield _message(body, "The body has no RecordIO magic number, and as a whole it")
        return
    for number, frame in enumerate(recordio(io.BytesIO(body)), 1):
        yield _message(bytes(frame.payload), f"Record {number}, at byte {frame.offset},")


def _message(payload: bytes, subject: str) -> RecordIORecord:
    try:
        return RecordIORecord.FromString(payload)
    except DecodeError:
        raise BadInput(f"{subject} is not a SageMaker Record.") from None


def _feature(value: Any, subject: str, budget: MemoryBudget) -> Feature:
    kind = value.WhichOneof("value")
    if kind is None:
        raise BadInput(f"{subject} has no value.")
    if kind == "bytes":
        return Feature(strings_of(value.bytes.value, budget, subject))
    tensor = getattr(value, kind)
    values = numbers_of(tensor.values, _DTYPES[kind], budget, subject)
    shape = tuple(tensor.shape)
    if len(shape) > _MAX_DIMENSIONS:
        raise BadInput(f"{subject} has {len(shape)} dimensions.")
    if not is_possible(shape):
        raise BadInput(f"{subject} has a shape that no array has.")
    if len(tensor.keys):
        return Feature(
            _dense(values, numbers_of(tensor.keys, np.uint64, budget, subject), shape, subject, budget), shape
        )
    if shape and prod(shape) != values.size:
        raise BadInput(
            f"{subject} has {values.size} values, but its shape {list(shape)} needs {prod(shape)}."
        )
    return Feature(values, shape or None)


def _dense(
    values: npt.NDArray[Any],
    keys: npt.NDArray[Any],
    shape: tuple[int, ...],
    subject: str,
    budget: MemoryBudget,
) -> npt.NDArray[Any]:
    """A sparse tensor in full; its size is looked at before there is an array of it."""
    size = prod(shape) if shape else 0
    if not size or int(keys.max()) >= size or keys.size != values.size:
        raise BadInput(
            f"{subject} is sparse, but its keys don't match its {values.size} values and its shape."
        )
    budget.take(size * values.itemsize, f"{subject} with those before it,")
    array = np.zeros(size, values.dtype)
    array[keys] = values
    return array
