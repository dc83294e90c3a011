"""Signatures of a model.tflite, without tensorflow.

Slots are those of tensorflow/compiler/mlir/lite/schema/schema.fbs. The signatures are those that the model
server shows: of the metadata that TF Serving reads, else the file's own, else one of all tensors.
"""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

from flatbuffers import flexbuffers, number_types
from flatbuffers.table import Table

from tfs_proxy.model.discover import LITE_FILE
from tfs_proxy.model.saved_model import SERVE_TAG, SavedModelSummary, read_signature
from tfs_proxy.values.errors import DiscoveryError
from tfs_proxy.values.signature import DEFAULT_SIGNATURE, PREDICT_METHOD, Signature, TensorSpec
from tfs_proxy.wire.protobuf_reader import MalformedProtobuf

IDENTIFIER = b"TFL3"
SIGNATURES_METADATA = b"signature_defs_metadata"
MOST_UNITS = 1_000_000
"""Limit of list entries and bytes of text that are read of one file."""

SUBGRAPHS, BUFFERS, METADATA, SIGNATURES = 2, 4, 6, 7
TENSORS, INPUTS, OUTPUTS = 0, 1, 2
SHAPE, TYPE, NAME, SHAPE_SIGNATURE = 0, 1, 3, 7
SIGNATURE_INPUTS, SIGNATURE_OUTPUTS, SIGNATURE_KEY, SIGNATURE_SUBGRAPH = 0, 1, 2, 4
ALIAS, INDEX = 0, 1
METADATA_NAME, METADATA_BUFFER = 0, 1
BUFFER_DATA = 0

TYPES = (
    *("DT_FLOAT", "DT_HALF", "DT_INT32", "DT_UINT8", "DT_INT64", "DT_STRING", "DT_BOOL", "DT_INT16"),
    *("DT_COMPLEX64", "DT_INT8", "DT_DOUBLE", "DT_COMPLEX128", "DT_UINT64", "DT_RESOURCE", "DT_VARIANT"),
    *("DT_UINT32", "DT_UINT16", "DT_INT4", "DT_BFLOAT16"),
)
"""TensorFlow's names of TensorFlow Lite's types, by number."""


def read_lite_model(folder: Path) -> SavedModelSummary:
    """Read ``folder/model.tflite``. Raises DiscoveryError if it can't be read or is damaged."""
    path = folder / LITE_FILE
    try:
        with path.open("rb") as file:
            contents = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise DiscoveryError(f"{path} cannot be read: {error}.") from None
    if contents[4:8] != IDENTIFIER:
        raise DiscoveryError(
            f"{path} is not a TensorFlow Lite model. Copy it again from where it was written."
        )
    try:
        root = _Record(Table(contents, struct.unpack_from("<I", contents)[0]), _Allowance())
        signatures = dict(_signatures(root))
    except (struct.error, IndexError, ValueError, TypeError, OverflowError, MalformedProtobuf) as error:
        raise DiscoveryError(
            f"{path} is damaged ({error}). Copy it again from where it was written."
        ) from None
    return SavedModelSummary(((SERVE_TAG,),), "", signatures, ())


class _Allowance:
    """Limit of bytes and parts to read: a hostile file can name the same part of itself many times."""

    def __init__(self) -> None:
        self._left = MOST_UNITS

    def take(self, units: int) -> int:
        """Count ``units`` entries, or bytes of text, that are going to be read; returns them."""
        self._left -= units
        if self._left < 0:
            raise ValueError("it says more of its tensors than a model would")
        return units


class _Record:
    """Table of the flatbuffer, whose fields are read by their slots."""

    def __init__(self, table: Table, allowance: _Allowance) -> None:
        self._table = table
        self._allowance = allowance

    def tables(self, slot: int) -> "list[_Record]":
        """Read the tables in a vector; none without the field."""
        start, count = self._vector(slot)
        width = number_types.UOffsetTFlags.bytewidth
        places = (start + index * width for index in range(count))
        return [
            _Record(Table(self._table.Bytes, self._table.Indirect(place)), self._allowance)
            for place in places
        ]

    def numbers(self, slot: int) -> tuple[int, ...]:
        """Read a vector of 32-bit numbers; none without the field."""
        start, count = self._vector(slot)
        return struct.unpack_from(f"<{count}i", self._table.Bytes, start) if count else ()

    def number(self, slot: int, flags: type = number_types.Uint32Flags) -> int:
        """Read a number; 0 without the field."""
        offset = self._offset(slot)
        return int(self._table.Get(flags, self._table.Pos + offset)) if offset else 0

    def text(self, slot: int) -> str:
        """Read a string; empty without the field."""
        return self.bytes(slot).decode("utf-8", "backslashreplace")

    def bytes(self, slot: int) -> bytes:
        """Read a string, or a vector of bytes."""
        start, count = self._vector(slot)
        return bytes(self._table.Bytes[start : start + count])

    def _vector(self, slot: int) -> tuple[int, int]:
        """Beginning of a vector, and the number of its entries."""
        offset = self._offset(slot)
        if not offset:
            return 0, 0
        return self._table.Vector(offset), self._allowance.take(int(self._table.VectorLen(offset)))

    def _offset(self, slot: int) -> int:
        """Offset of a field, from the beginning of its table; 0 if it is not there."""
        return int(self._table.Offset(4 + 2 * slot))


def _signatures(model: _Record) -> Iterator[tuple[str, Signature]]:
    described = _described(model)
    if described:
        yield from described.items()
        return
    own, subgraphs = model.tables(SIGNATURES), model.tables(SUBGRAPHS)
    for entry in own:
        tensors = subgraphs[entry.number(SIGNATURE_SUBGRAPH)].tables(TENSORS)
        key = entry.text(SIGNATURE_KEY)
        inputs, outputs = (
            {
                each.text(ALIAS): _tensor(tensors[each.number(INDEX)], each.text(ALIAS))
                for each in sorted(entry.tables(slot), key=lambda each: each.text(ALIAS))
            }
            for slot in (SIGNATURE_INPUTS, SIGNATURE_OUTPUTS)
        )
        yield key, Signature(key, PREDICT_METHOD, inputs, outputs)
    if not own:
        tensors = subgraphs[0].tables(TENSORS)
        inputs, outputs = (
            {spec.name: spec for spec in (_tensor(tensors[index]) for index in indices)}
            for indices in (subgraphs[0].numbers(INPUTS), subgraphs[0].numbers(OUTPUTS))
        )
        yield DEFAULT_SIGNATURE, Signature(DEFAULT_SIGNATURE, PREDICT_METHOD, inputs, outputs)


def _described(model: _Record) -> dict[str, Signature]:
    """Signatures in the metadata: a map of serialized SignatureDefs."""
    for entry in model.tables(METADATA):
        if entry.bytes(METADATA_NAME) == SIGNATURES_METADATA:
            buffer = model.tables(BUFFERS)[entry.number(METADATA_BUFFER)]
            found = flexbuffers.GetRoot(buffer.bytes(BUFFER_DATA)).AsMap
            names = [key.AsKey for key in found.Keys]
            texts = [value.AsStringBytes for value in found.Values]
            return {
                name: read_signature(name, memoryview(text)) for name, text in zip(names, texts, strict=True)
            }
    return {}


def _tensor(tensor: _Record, alias: str | None = None) -> TensorSpec:
    """Read a tensor; without an ``alias`` it has its own name."""
    shape = tensor.numbers(SHAPE_SIGNATURE) or tensor.numbers(SHAPE)
    sizes = tuple(None if size < 0 else size for size in shape)
    name = tensor.text(NAME)
    dtype = TYPES[tensor.number(TYPE, number_types.Int8Flags)]
    return TensorSpec(name.removesuffix(":0") if alias is None else alias, dtype, sizes, name)
