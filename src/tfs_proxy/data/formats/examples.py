"""Arrays and features of tf.train.Example, TFRecord files of it, and SageMaker's RecordIO of Records."""

import io
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from msgspec import Struct

from tfs_proxy.data import shapes
from tfs_proxy.data.arrays import typed
from tfs_proxy.data.formats.framing import RECORDIO_MAGIC, recordio, tfrecords
from tfs_proxy.data.formats.raw_bytes import string_input, strings_batch
from tfs_proxy.data.serving_json.documents import BASE64, base64_of
from tfs_proxy.values.batch import BYTES, Batch, Examples
from tfs_proxy.values.errors import BadInput, from_client
from tfs_proxy.values.memory import ELEMENT_BYTES, RECORD_BYTES, STRING_BYTES, MemoryBudget
from tfs_proxy.values.signature import PREDICT_METHOD, Signature, TensorSpec
from tfs_proxy.wire.protos import Example, RecordIORecord

Shape = tuple[int, ...]


class Feature(Struct, frozen=True):
    """Values of one feature, flat, and their shape if the format tells one."""

    values: npt.NDArray[Any]
    shape: Shape | None = None


Record = Mapping[str, Feature]

JSON_VALUE_BYTES = ELEMENT_BYTES + 32
"""Memory of a value of classify and regress, which go as JSON: an object, its text, a value at the server."""


def _values(
    values: Sequence[Any], dtype: npt.DTypeLike, budget: MemoryBudget, subject: str
) -> npt.NDArray[Any]:
    """Array of a repeated field's numbers or strings, without a list of them in between."""
    budget.take(len(values) * (STRING_BYTES if dtype == BYTES else np.dtype(dtype).itemsize), subject)
    return np.fromiter(values, dtype, len(values))


def batch_of_features(records: Sequence[Record], signature: Signature) -> Batch:
    """Make arrays by input name; raises BadInput naming record and feature that is missing or doesn't fit."""
    if not records:
        raise BadInput("The body has no records.")
    inputs = {name: _column(records, spec) for name, spec in signature.inputs.items()}
    return shapes.fitted(Batch(inputs, len(records)), signature)


def examples_of_features(records: Sequence[Record], budget: MemoryBudget) -> Examples:
    """Make features for classify and regress; an empty one counts as missing."""
    if not records:
        raise BadInput("The body has no records.")
    for record in records:
        for name, feature in record.items():
            budget.take(feature.values.size * JSON_VALUE_BYTES, f'The feature "{name}" as JSON')
    return Examples(
        tuple(
            {name: _json(feature.values) for name, feature in record.items() if feature.values.size}
            for record in records
        )
    )


def _json(values: npt.NDArray[Any]) -> list[Any]:
    if values.dtype == BYTES:
        return [{BASE64: base64_of(value)} for value in values.tolist()]
    listed: list[Any] = values.tolist()
    return listed


def _column(records: Sequence[Record], spec: TensorSpec) -> npt.NDArray[Any]:
    rows = []
    for number, record in enumerate(records, 1):
        subject = f'Record {number}, feature "{spec.name}",'
        feature = record.get(spec.name)
        if feature is None:
            names = from_client(", ".join(sorted(record))[:200] or "none")
            text = f'Record {number} has no feature "{spec.name}"; it has {names}.'
            raise BadInput(text, (number - 1, spec.name))
        wanted = _wanted(feature, spec, len(records))
        values = feature.values
        # Such records have no type for booleans.
        if spec.dtype == "DT_BOOL" and values.dtype.kind == "i" and bool(np.isin(values, (0, 1)).all()):
            values = values.astype(np.bool_)
        try:
            rows.append(typed(values, spec, subject).reshape(_shape(feature, wanted, subject)))
        except BadInput as error:
            error.loc = (number - 1, spec.name)
            raise
        if rows[-1].shape != rows[0].shape:
            text = f"{subject} has shape {rows[-1].shape}, but record 1 has {rows[0].shape}."
            raise BadInput(text, (number - 1, spec.name))
    if not shapes.is_possible((len(rows), *rows[0].shape)):
        raise BadInput(f'The feature "{spec.name}" of all records together has a shape that no array has.')
    return np.stack(rows)


def _wanted(feature: Feature, spec: TensorSpec, records: int) -> shapes.Declared:
    """Shape that the signature has for one record: all of it if it has no size for the records."""
    if spec.shape is None:
        return None
    size = feature.values.size
    is_whole = not shapes.has_records(spec) and size != _size(spec.shape[1:])
    if is_whole and records > 1 and size == _size(spec.shape):
        raise shapes.one_record_only(spec, f"{records} records")
    return spec.shape if is_whole and records == 1 else spec.shape[1:]


def _size(shape: Sequence[int | None]) -> int:
    return prod(length for length in shape if length is not None)


def _shape(feature: Feature, wanted: shapes.Declared, subject: str) -> Shape:
    """Shape of one record: the feature's own if it has one and the signature takes it."""
    size = feature.values.size
    own = feature.shape
    if own is not None and shapes.fits(own, wanted):
        return own
    if own is not None and len(own) > 1:
        raise BadInput(
            f"{subject} has shape {list(own)}, but the model takes {_text(wanted)}.{shapes.PASSES}"
        )
    if wanted is None:
        return () if size == 1 else (size,)
    unknown = wanted.count(None)
    if unknown > 1:
        raise BadInput(
            f"{subject} has no shape, and the model's {_text(wanted)} leaves it open: send npy or JSON."
        )
    known = _size(wanted)
    if size != known if not unknown else (not known or size % known):
        raise BadInput(f"{subject} has {size} values, but the model takes {_text(wanted)}.{shapes.PASSES}")
    return tuple(size // known if length is None else length for length in wanted)


def _text(wanted: Sequence[int | None] | None) -> str:
    return shapes.shape_text(wanted) if wanted else "one value"


def decode_example(body: bytes, signature: Signature, budget: MemoryBudget) -> Batch:
    """Decode a serialized tf.Example for predict; raises BadInput if it is none, or lacks an input."""
    records = [_record(body, 1, budget)]
    return _batch([body], records, signature)


def decode_tfrecords(body: bytes, signature: Signature, budget: MemoryBudget) -> Batch:
    """Decode TFRecords for predict: any strings for a model with one input of strings, else tf.Examples.

    Raises BadInput naming record and byte for damaged framing, record and feature for the rest.
    """
    payloads = _payloads(body, budget)
    if string_input(signature) is None:
        return batch_of_features(_records(payloads, budget), signature)
    try:
        records = _records(payloads, budget)
    except BadInput:
        records = []
    return _batch(payloads, records, signature)


def examples_of_example(body: bytes, budget: MemoryBudget) -> Examples:
    """Decode a serialized tf.Example for classify and regress."""
    return examples_of_features([_record(body, 1, budget)], budget)


def examples_of_tfrecords(body: bytes, budget: MemoryBudget) -> Examples:
    """Decode TFRecords of tf.Examples for classify and regress."""
    return examples_of_features(_records(_payloads(body, budget), budget), budget)


def _payloads(body: bytes, budget: MemoryBudget) -> list[bytes]:
    payloads = []
    for number, frame in enumerate(tfrecords(io.BytesIO(body)), 1):
        budget.take(RECORD_BYTES, f"TFRecord {number}, with those before it,")
        payloads.append(bytes(frame.payload))
    if not payloads:
        raise BadInput("The body has no records.")
    return payloads


def _batch(payloads: Sequence[bytes], records: Sequence[Record], signature: Signature) -> Batch:
    """Take the features of records, or the records as strings if the model has an input of strings."""
    spec = string_input(signature)
    if spec is None:
        return batch_of_features(records, signature)
    named = all(spec.name in record and record[spec.name].values.dtype == BYTES for record in records)
    if records and named and signature.method == PREDICT_METHOD:
        return batch_of_features(records, signature)
    return strings_batch(payloads, signature)


def _records(payloads: Sequence[bytes], budget: MemoryBudget) -> list[Record]:
    return [_record(payload, number, budget) for number, payload in enumerate(payloads, 1)]


def _record(payload: bytes, number: int, budget: MemoryBudget) -> Record:
    try:
        example = Example.FromString(payload)
    except DecodeError:
        raise BadInput(f"Record {number} is not a serialized tf.Example.", (number - 1,)) from None
    features = {}
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind") or "int64_list"
        listed = getattr(feature, kind).value
        subject = f'Record {number}, feature "{name}",'
        features[name] = Feature(_values(listed, _DTYPES[kind], budget, subject))
    return features


VALUES = "values"
"""Feature with all of a record's values, in SageMaker's built-in algorithms."""

_DTYPES: dict[str, npt.DTypeLike] = {
    "bytes_list": BYTES,
    "float_list": np.float32,
    "int64_list": np.int64,
    "float32_tensor": np.float32,
    "float64_tensor": np.float64,
    "int32_tensor": np.int32,
}
_MAGIC = RECORDIO_MAGIC.to_bytes(4, "little")


def decode_recordio(body: bytes, signature: Signature, budget: MemoryBudget) -> Batch:
    """Decode Records for predict: features by input name; a model of one input takes ``values``, too.

    Sparse tensors (with keys) are filled up with zeros to the shape that they have to declare.
    Raises BadInput naming record and byte or feature, PayloadTooLarge if they fill more than the budget
    has left.
    """
    records = list(_recordio_records(body, budget))
    if len(signature.inputs) == 1:
        (name,) = signature.inputs
        for record in records:
            if VALUES in record:
                record.setdefault(name, record[VALUES])
    return batch_of_features(records, signature)


def examples_of_recordio(body: bytes, budget: MemoryBudget) -> Examples:
    """Decode Records for classify and regress, which take features by their names."""
    return examples_of_features(list(_recordio_records(body, budget)), budget)


def _recordio_records(body: bytes, budget: MemoryBudget) -> Iterator[dict[str, Feature]]:
    for number, message in enumerate(_messages(body), 1):
        budget.take(RECORD_BYTES, f"Record {number}, with those before it,")
        try:
            features = list(message.features.items())
        except UnicodeDecodeError:
            raise BadInput(f"Record {number} has a feature whose name is not UTF-8.", (number - 1,)) from None
        yield {
            name: _feature(value, f'Record {number}, feature "{name}",', budget) for name, value in features
        }


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
        return Feature(_values(value.bytes.value, BYTES, budget, subject))
    tensor = getattr(value, kind)
    values = _values(tensor.values, _DTYPES[kind], budget, subject)
    shape = tuple(tensor.shape)
    if not shapes.is_possible(shape):
        raise BadInput(f"{subject} has a shape that no array has.")
    if len(tensor.keys):
        keys = _values(tensor.keys, np.uint64, budget, subject)
        # The size of a sparse tensor is checked before there is an array of it.
        size = prod(shape) if shape else 0
        if not size or int(keys.max()) >= size or keys.size != values.size:
            raise BadInput(
                f"{subject} is sparse, but its keys don't match its {values.size} values and its shape."
            )
        budget.take(size * values.itemsize, f"{subject} with those before it,")
        array = np.zeros(size, values.dtype)
        array[keys] = values
        return Feature(array, shape)
    if shape and prod(shape) != values.size:
        raise BadInput(
            f"{subject} has {values.size} values, but its shape {list(shape)} needs {prod(shape)}."
        )
    return Feature(values, shape or None)
