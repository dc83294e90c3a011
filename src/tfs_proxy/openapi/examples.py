"""A signature -> a body of each media type with one record of it, made by the formats' own writers."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from tfs_proxy.batch import BYTES, Outputs
from tfs_proxy.errors import RequestError
from tfs_proxy.openapi.pictures import JPEG, PNG
from tfs_proxy.openapi.sample_records import ANY_STRING, example_of, json_string
from tfs_proxy.payload import media_types as media
from tfs_proxy.payload.formats.framing import recordio_frame, tfrecord_frame
from tfs_proxy.payload.formats.npy import npy_of_outputs, write_npz
from tfs_proxy.payload.formats.outputs import csv_of_outputs, lines_of_outputs
from tfs_proxy.payload.registry import FORMATS, decode
from tfs_proxy.payload.shapes import has_records, misfits
from tfs_proxy.protos import RecordIORecord
from tfs_proxy.report.sample import sample_inputs, sample_sizes
from tfs_proxy.signature import Signature, TensorSpec
from tfs_proxy.wire.dtypes import array_type


def example_bodies(signature: Signature, string: bytes) -> Mapping[str, bytes]:
    """Bodies with one record by the media types that can be converted for this signature.

    Every string among the inputs is ``string``; media types of pictures have pictures. Each body has been
    read back: a type that can't carry the model's inputs is not among them.
    """
    try:
        inputs = {name: sample_array(spec, string) for name, spec in signature.inputs.items()}
    except RequestError:
        return {}
    bodies = {media.JSON: json.dumps(sample_inputs(signature, json_string(string))).encode()}
    counted = any(map(has_records, signature.inputs.values()))
    records = inputs if counted else {name: array[None] for name, array in inputs.items()}
    for name, write in _WRITERS.items():
        with suppress(RequestError, ValueError, TypeError):
            bodies[name] = write(records)
    raw = {**(PICTURES if string in {ANY_STRING, PNG} else {}), media.BYTES: string, media.TEXT: string}
    read = {
        **{name: body for name, body in bodies.items() if _is_read(body, name, signature, inputs)},
        **{name: body for name, body in raw.items() if _is_read(body, name, signature)},
    }
    return {name: read[name] for name in FORMATS if name in read}


def sample_array(spec: TensorSpec, string: bytes) -> npt.NDArray[Any]:
    """One record of an input; raises BadInput for a type that arrays don't carry."""
    dtype = array_type(spec)
    value: Any = string if dtype == BYTES else True if dtype.kind == "b" else 1
    return np.full(sample_sizes(spec), value, dtype)


def _is_read(body: bytes, media_type: str, signature: Signature, inputs: Outputs | None = None) -> bool:
    """Whether a body is what the signature takes, and these ``inputs`` if they are given."""
    try:
        batch = decode(body, media.parse(media_type), signature)
    except RequestError:
        return False
    is_same = inputs is None or all(np.array_equal(batch.inputs[name], inputs[name]) for name in inputs)
    return is_same and not misfits(batch.inputs, signature)


def _csv(inputs: Outputs) -> bytes:
    """A row for the only input; else a header first that names the inputs of its cells."""
    if len(inputs) == 1:
        return csv_of_outputs(inputs)
    header = [name for name in sorted(inputs) for _ in range(inputs[name].size)]
    return ",".join(header).encode() + b"\n" + csv_of_outputs(inputs)


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


PICTURES: Mapping[str, bytes] = {media.JPEG: JPEG, media.PNG: PNG, media.IMAGE: PNG}
_WRITERS: Mapping[str, Callable[[Outputs], bytes]] = {
    media.JSON_LINES: lines_of_outputs,
    media.JSONS: lines_of_outputs,
    media.CSV: _csv,
    media.NPY: npy_of_outputs,
    media.NPZ: write_npz,
    media.TF_EXAMPLE: example_of,
    media.TF_RECORD: lambda inputs: tfrecord_frame(example_of(inputs)),
    media.RECORDIO: _recordio,
}
"""A writer for every format but TF Serving's JSON and those whose body is one string."""
