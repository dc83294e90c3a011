"""Records of named features -> `Batch` or `Examples`: what tf.Example and recordio-protobuf share.

A feature is mapped to the input of its name and takes the input's shape; features that are not
inputs, such as labels, are left out, as TensorFlow's own parser does.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tfs_proxy.batch import BYTES, Batch, Examples
from tfs_proxy.errors import BadInput, from_client
from tfs_proxy.memory import ELEMENT_BYTES, STRING_BYTES, MemoryBudget
from tfs_proxy.payload.arrays import typed
from tfs_proxy.payload.shapes import (
    Declared,
    fits,
    fitted,
    has_records,
    is_possible,
    one_record_only,
    shape_text,
)
from tfs_proxy.serving_json.text import BASE64, base64_of
from tfs_proxy.signature import Signature, TensorSpec

Shape = tuple[int, ...]


class Feature(Struct, frozen=True):
    """The values of one feature, flat, and their shape if the format tells one."""

    values: npt.NDArray[Any]
    shape: Shape | None = None


Record = Mapping[str, Feature]

JSON_VALUE_BYTES = ELEMENT_BYTES + 32
"""A value of classify and regress, which go as JSON: an object here, its text, and a value at the server."""


def numbers_of(
    values: Sequence[Any], dtype: npt.DTypeLike, budget: MemoryBudget, subject: str
) -> npt.NDArray[Any]:
    """The numbers of a repeated field as an array, without a list of them in between."""
    budget.take(len(values) * np.dtype(dtype).itemsize, subject)
    return np.fromiter(values, dtype, len(values))


def strings_of(values: Sequence[bytes], budget: MemoryBudget, subject: str) -> npt.NDArray[Any]:
    """The strings of a repeated field as an array of objects."""
    budget.take(len(values) * STRING_BYTES, subject)
    return np.fromiter(values, BYTES, len(values))


def batch_of_features(records: Sequence[Record], signature: Signature) -> Batch:
    """Arrays by input name; raises BadInput naming record and feature if one is missing or doesn't fit."""
    if not records:
        raise BadInput("The body has no records.")
    inputs = {name: _column(records, spec) for name, spec in signature.inputs.items()}
    return fitted(Batch(inputs, len(records)), signature)


def examples_of_features(records: Sequence[Record], budget: MemoryBudget) -> Examples:
    """Features as classify and regress take them; an empty one is as good as none."""
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
            raise BadInput(f'Record {number} has no feature "{spec.name}"; it has {names}.')
        wanted = _wanted(feature, spec, len(records))
        rows.append(typed(_values(feature, spec), spec, subject).reshape(_shape(feature, wanted, subject)))
        if rows[-1].shape != rows[0].shape:
            raise BadInput(f"{subject} has shape {rows[-1].shape}, but record 1 has {rows[0].shape}.")
    if not is_possible((len(rows), *rows[0].shape)):
        raise BadInput(f'The feature "{spec.name}" of all records together has a shape that no array has.')
    return np.stack(rows)


def _wanted(feature: Feature, spec: TensorSpec, records: int) -> Declared:
    """What the signature has for one record: its whole shape if there is no size for the records in it."""
    if spec.shape is None:
        return None
    size = feature.values.size
    is_whole = not has_records(spec) and size != _size(spec.shape[1:])
    if is_whole and records > 1 and size == _size(spec.shape):
        raise one_record_only(spec, f"{records} records")
    return spec.shape if is_whole and records == 1 else spec.shape[1:]


def _size(shape: Sequence[int | None]) -> int:
    return prod(length for length in shape if length is not None)


def _values(feature: Feature, spec: TensorSpec) -> npt.NDArray[Any]:
    """Whole numbers 0 and 1 as booleans if the input takes those: such records have no type for them."""
    values = feature.values
    is_bool = spec.dtype == "DT_BOOL" and values.dtype.kind == "i" and bool(np.isin(values, (0, 1)).all())
    return values.astype(np.bool_) if is_bool else values


def _shape(feature: Feature, wanted: Declared, subject: str) -> Shape:
    """The shape of one record: the feature's own if it has one and the signature takes it."""
    size = feature.values.size
    own = feature.shape
    if own is not None and fits(own, wanted):
        return own
    if own is not None and len(own) > 1:
        raise BadInput(f"{subject} has shape {list(own)}, but the model takes {_text(wanted)}.")
    if wanted is None:
        return () if size == 1 else (size,)
    unknown = wanted.count(None)
    if unknown > 1:
        raise BadInput(
            f"{subject} has no shape, and the model's {_text(wanted)} leaves it open: send npy or JSON."
        )
    known = _size(wanted)
    if size != known if not unknown else (not known or size % known):
        raise BadInput(f"{subject} has {size} values, but the model takes {_text(wanted)}.")
    return tuple(size // known if length is None else length for length in wanted)


def _text(wanted: Sequence[int | None] | None) -> str:
    return shape_text(wanted) if wanted else "one value"
