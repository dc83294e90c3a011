"""A signature -> a body of each media type with one record of it, made by the formats' own writers."""

import base64
import json
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tfs_proxy.batch import BYTES, Outputs
from tfs_proxy.errors import RequestError
from tfs_proxy.payload import media_types as media
from tfs_proxy.payload.decode import decode
from tfs_proxy.payload.formats.csv_text import csv_of_outputs
from tfs_proxy.payload.formats.framing import recordio_frame, tfrecord_frame
from tfs_proxy.payload.formats.json_outputs import lines_of_outputs
from tfs_proxy.payload.formats.npy import npy_of_outputs
from tfs_proxy.payload.formats.npz import write_npz
from tfs_proxy.payload.registry import names_with
from tfs_proxy.payload.shapes import misfits
from tfs_proxy.protos import Example, RecordIORecord
from tfs_proxy.report.sample import sample_inputs, sample_sizes
from tfs_proxy.signature import Signature, TensorSpec
from tfs_proxy.wire.dtypes import array_type

JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAP//////////////////////////////////////////////////////////////////"
    "////////////////////wAALCAABAAEBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAAAP/EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAI"
    "AQEAAD8AP//Z"
)
"""A grey picture of one pixel."""


def example_bodies(signature: Signature) -> Mapping[str, bytes]:
    """Bodies with one record by the media types that can be converted for this signature.

    Each has been read back: a type that can't carry the model's inputs is not among them.
    """
    try:
        inputs = {name: sample_array(spec) for name, spec in signature.inputs.items()}
    except RequestError:
        return {}
    bodies = {}
    for name in names_with(lambda row: row.decode):
        body = _body(name, inputs, signature)
        if body is not None and _is_read(body, name, signature):
            bodies[name] = body
    return bodies


def sample_array(spec: TensorSpec) -> npt.NDArray[Any]:
    """One record of an input; raises BadInput for a type that arrays don't carry."""
    dtype = array_type(spec)
    value: Any = b"a" if dtype == BYTES else True if dtype.kind == "b" else 1
    return np.full(sample_sizes(spec), value, dtype)


def _body(media_type: str, inputs: Outputs, signature: Signature) -> bytes | None:
    """None if the format has no such body."""
    if media_type == media.JSON:
        return json.dumps(sample_inputs(signature)).encode()
    try:
        return _WRITERS[media_type](inputs)
    except (RequestError, ValueError, TypeError):
        return None


def _is_read(body: bytes, media_type: str, signature: Signature) -> bool:
    try:
        batch = decode(body, media.parse(media_type), signature)
    except RequestError:
        return False
    return not misfits(batch.inputs, signature)


def _csv(inputs: Outputs) -> bytes:
    """A row for the only input; else a header first that names the inputs of its cells."""
    if len(inputs) == 1:
        return csv_of_outputs(inputs)
    header = [name for name in sorted(inputs) for _ in range(inputs[name].size)]
    return ",".join(header).encode() + b"\n" + csv_of_outputs(inputs)


def _tf_example(inputs: Outputs) -> bytes:
    example = Example()
    for name, array in inputs.items():
        feature = example.features.feature[name]
        if array.dtype == BYTES:
            feature.bytes_list.value.extend(array.ravel().tolist())
        elif array.dtype.kind == "f":
            feature.float_list.value.extend(array.ravel().tolist())
        else:
            feature.int64_list.value.extend(array.ravel().tolist())
    return example.SerializeToString(deterministic=True)


def _recordio(inputs: Outputs) -> bytes:
    record = RecordIORecord()
    for name, array in inputs.items():
        value = record.features[name]
        if array.dtype == BYTES:
            value.bytes.value.extend(array.ravel().tolist())
            continue
        tensor = value.float32_tensor if array.dtype.kind == "f" else value.int32_tensor
        tensor.values.extend(array.ravel().tolist())
        tensor.shape.extend(array.shape[1:])
    return recordio_frame(record.SerializeToString(deterministic=True))


def _png() -> bytes:
    """A grey picture of one pixel."""
    head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(b"\0\x80")), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


PNG = _png()

_WRITERS: Mapping[str, Callable[[Outputs], bytes]] = {
    media.JSON_LINES: lines_of_outputs,
    media.JSONS: lines_of_outputs,
    media.CSV: _csv,
    media.NPY: npy_of_outputs,
    media.NPZ: write_npz,
    media.JPEG: lambda _: JPEG,
    media.PNG: lambda _: PNG,
    media.IMAGE: lambda _: PNG,
    media.BYTES: lambda _: PNG,
    media.TF_EXAMPLE: _tf_example,
    media.TF_RECORD: lambda inputs: tfrecord_frame(_tf_example(inputs)),
    media.RECORDIO: _recordio,
}
"""A writer for every format that is read; JSON has TF Serving's form."""
