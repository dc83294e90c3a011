"""application/x-recordio-protobuf (SageMaker's Record in MXNet's RecordIO) -> `Batch` or `Examples`."""

import io
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from tfs_proxy.batch import BYTES, Batch, Examples
from tfs_proxy.errors import BadInput, PayloadTooLarge
from tfs_proxy.payload.features import Feature, Record, batch_of_features, examples_of_features
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


def decode_recordio(body: bytes, signature: Signature, limit_bytes: int) -> Batch:
    """Records for predict: features by input name; a model of one input takes ``values``, too.

    Sparse tensors (with keys) are filled up with zeros to the shape that they have to declare.
    Raises BadInput naming record and byte or feature, PayloadTooLarge if they fill more than
    ``limit_bytes``.
    """
    records = list(_records(body, limit_bytes))
    if len(signature.inputs) == 1:
        (name,) = signature.inputs
        records = [_renamed(record, name) for record in records]
    return batch_of_features(records, signature)


def examples_of_recordio(body: bytes, limit_bytes: int) -> Examples:
    """Records for classify and regress, which take features by their names."""
    return examples_of_features(list(_records(body, limit_bytes)))


def _renamed(record: Record, name: str) -> Record:
    if name not in record and VALUES in record:
        return {**record, name: record[VALUES]}
    return record


def _records(body: bytes, limit_bytes: int) -> Iterator[Record]:
    left = limit_bytes
    for number, message in enumerate(_messages(body, limit_bytes), 1):
        record: dict[str, Feature] = {}
        for name, value in _features(message, number):
            record[name] = _feature(value, f'Record {number}, feature "{name}",', left)
            left -= record[name].values.nbytes
        yield record


def _features(message: RecordIORecord, number: int) -> list[tuple[str, Any]]:
    try:
        return list(message.features.items())
    except UnicodeDecodeError:
        raise BadInput(f"Record {number} has a feature whose name is not UTF-8.") from None


def _messages(body: bytes, limit_bytes: int) -> Iterator[RecordIORecord]:
    if body and not body.startswith(_MAGIC):
        # NOTE: batch transform's SingleRecord strategy strips the framing (docs/reference/sagemaker.md).
        yield _message(body, "The body has no RecordIO magic number, and as a whole it")
        return
    for number, frame in enumerate(recordio(io.BytesIO(body), limit_bytes), 1):
        yield _message(bytes(frame.payload), f"Record {number}, at byte {frame.offset},")


def _message(payload: bytes, subject: str) -> RecordIORecord:
    try:
        return RecordIORecord.FromString(payload)
    except DecodeError:
        raise BadInput(f"{subject} is not a SageMaker Record.") from None


def _feature(value: Any, subject: str, left: int) -> Feature:
    kind = value.WhichOneof("value")
    if kind is None:
        raise BadInput(f"{subject} has no value.")
    if kind == "bytes":
        return Feature(np.array(list(value.bytes.value), BYTES))
    tensor = getattr(value, kind)
    values = np.array(tensor.values, _DTYPES[kind])
    shape = tuple(tensor.shape)
    if len(shape) > _MAX_DIMENSIONS:
        raise BadInput(f"{subject} has {len(shape)} dimensions.")
    if not is_possible(shape):
        raise BadInput(f"{subject} has a shape that no array has.")
    if len(tensor.keys):
        return Feature(_dense(values, list(tensor.keys), shape, subject, left), shape)
    if shape and prod(shape) != values.size:
        raise BadInput(
            f"{subject} has {values.size} values, but its shape {list(shape)} needs {prod(shape)}."
        )
    return Feature(values, shape or None)


def _dense(
    values: npt.NDArray[Any], keys: list[int], shape: tuple[int, ...], subject: str, left: int
) -> npt.NDArray[Any]:
    """A sparse tensor in full; its size is looked at before there is an array of it."""
    size = prod(shape) if shape else 0
    if not size or max(keys) >= size or len(keys) != values.size:
        raise BadInput(
            f"{subject} is sparse, but its keys don't match its {values.size} values and its shape."
        )
    if size * values.itemsize > left:
        raise PayloadTooLarge(f"{subject} and those before it are larger than the limit of a body.")
    array = np.zeros(size, values.dtype)
    array[np.array(keys, np.int64)] = values
    return array
