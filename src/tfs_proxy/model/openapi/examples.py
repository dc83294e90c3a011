"""Examples of bodies with one record for each media type of a signature, by the formats' own writers."""

import base64
import json
import math
import struct
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tfs_proxy.data.formats.framing import recordio_frame, tfrecord_frame
from tfs_proxy.data.formats.npy import npy_of_outputs, write_npz
from tfs_proxy.data.formats.outputs import csv_of_outputs, lines_of_outputs
from tfs_proxy.data.open_inference.datatypes import Datatype, datatype_of, to_raw
from tfs_proxy.data.open_inference.infer_request import BINARY_DATA_OUTPUT, BINARY_DATA_SIZE
from tfs_proxy.data.open_inference.json_request import read_request
from tfs_proxy.data.registry import FORMATS, decode
from tfs_proxy.data.shapes import has_records, misfits
from tfs_proxy.model.graph_inputs import Features, GraphInputs
from tfs_proxy.model.report.served import SAMPLE_TEXT, sample_inputs, sample_sizes, sample_value
from tfs_proxy.values.batch import BYTES, Outputs
from tfs_proxy.values.errors import RequestError
from tfs_proxy.values.memory import MemoryBudget
from tfs_proxy.values.signature import DEFAULT_SIGNATURE, Signature, TensorSpec
from tfs_proxy.wire import media_types as media
from tfs_proxy.wire.dtypes import array_type
from tfs_proxy.wire.protos import Example, RecordIORecord

SIDE = 32
"""Side in pixels of a picture with three channels, of which a decoder makes any number."""


def _png() -> bytes:
    head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    row = b"\0" + b"\x80" * (3 * SIDE)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(row * SIDE, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def _jpeg() -> bytes:
    """Make a baseline JPEG in mid-grey: each block equals the one before it, which takes two bits."""
    one_code = bytes([1, *[0] * 15, 0])
    components = b"".join(bytes((number, 0x11, 0)) for number in (1, 2, 3))
    tables = b"".join(bytes((number, 0)) for number in (1, 2, 3))
    bits = 2 * 3 * (SIDE // 8) ** 2
    return b"".join(
        (
            b"\xff\xd8",
            _segment(0xDB, b"\0" + b"\1" * 64),
            _segment(0xC0, struct.pack(">BHHB", 8, SIDE, SIDE, 3) + components),
            _segment(0xC4, b"\x00" + one_code),
            _segment(0xC4, b"\x10" + one_code),
            _segment(0xDA, b"\3" + tables + b"\0\x3f\0"),
            bytes(bits // 8),
            b"\xff\xd9",
        )
    )


def _segment(marker: int, data: bytes) -> bytes:
    return bytes((0xFF, marker)) + struct.pack(">H", len(data) + 2) + data


PNG, JPEG = _png(), _jpeg()


ANY_STRING = SAMPLE_TEXT.encode()


def sample_string(signature: Signature, graph: GraphInputs) -> bytes | None:
    """Example for the strings among the inputs; None if nothing is known to work."""
    if [spec.dtype for spec in signature.inputs.values()] != ["DT_STRING"]:
        return ANY_STRING
    features = graph.features_of(signature)
    if features is None:
        return _text_or_picture(graph)
    arrays = _arrays(features, graph)
    return None if arrays is None else example_of(arrays)


def sample_features(signature: Signature, graph: GraphInputs) -> Outputs | None:
    """One tf.Example for classify or regress, ``[1, values]`` by name; None if none is known to work."""
    features = graph.features_of(signature)
    return None if features is None else _arrays(features, graph)


def feature_values(arrays: Outputs) -> Mapping[str, Any]:
    """Features in TF Serving's JSON: a list of values by name."""
    return {
        name: [json_string(value) if isinstance(value, bytes) else value for value in array[0].tolist()]
        for name, array in arrays.items()
    }


def json_string(value: bytes) -> Any:
    """String in TF Serving's JSON: text, or base64 in an object."""
    return value.decode() if value.isascii() else {"b64": base64.b64encode(value).decode()}


def example_of(arrays: Outputs) -> bytes:
    example = Example()
    for name, array in arrays.items():
        feature = example.features.feature[name]
        if array.dtype == BYTES:
            feature.bytes_list.value.extend(array.ravel().tolist())
        elif array.dtype.kind == "f":
            feature.float_list.value.extend(array.ravel().tolist())
        else:
            feature.int64_list.value.extend(array.ravel().tolist())
    return example.SerializeToString(deterministic=True)


def _arrays(features: Features, graph: GraphInputs) -> Outputs | None:
    string = _text_or_picture(graph)
    if string is None and any(spec.dtype == "DT_STRING" for spec in features.values()):
        return None
    return {name: _array(spec, string or ANY_STRING) for name, spec in features.items()}


def _array(spec: TensorSpec, string: bytes) -> Any:
    dtype = array_type(spec)
    return np.full((1, math.prod(sample_sizes(spec))), string if dtype == BYTES else 1, dtype)


def _text_or_picture(graph: GraphInputs) -> bytes | None:
    """Example of text or a picture; None if pictures are not resized: the graph does not tell their size."""
    if not graph.decodes_pictures:
        return ANY_STRING
    if not graph.resizes:
        return None
    return base64.urlsafe_b64encode(PNG) if graph.from_base64 else PNG


def example_bodies(signature: Signature, string: bytes) -> Mapping[str, bytes]:
    """Bodies with one record by the media types that can be converted for this signature.

    Every string input is ``string``; picture types have pictures. Each body has been read back, so a type
    that can't carry the model's inputs is missing.
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
    """One record of an input. Raises BadInput for a dtype that arrays don't carry."""
    dtype = array_type(spec)
    value: Any = string if dtype == BYTES else True if dtype.kind == "b" else 1
    return np.full(sample_sizes(spec), value, dtype)


def _is_read(body: bytes, media_type: str, signature: Signature, inputs: Outputs | None = None) -> bool:
    """True if the signature takes the body, and it is read as these ``inputs``, if they are given."""
    try:
        batch = decode(body, media.parse(media_type), signature)
    except RequestError:
        return False
    is_same = inputs is None or all(np.array_equal(batch.inputs[name], inputs[name]) for name in inputs)
    return is_same and not misfits(batch.inputs, signature)


def _csv(inputs: Outputs) -> bytes:
    """Write a row for a single input; for several a header that names the cells' inputs, and a row."""
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
"""Writers of all formats but TF Serving's JSON and those whose body is one string."""


class InferExample(Struct, frozen=True):
    """Example of a body; its first ``json_bytes`` are JSON."""

    body: bytes
    json_bytes: int


def infer_examples(signature: Signature, string: bytes) -> Mapping[str, InferExample]:
    """Examples by media type, with ``string`` for every string.

    Each has been read back, so a type that can't carry the inputs is missing.
    """
    datatypes = {name: datatype_of(spec) for name, spec in signature.inputs.items()}
    outputs = [datatype_of(spec) for spec in signature.outputs.values()]
    if not datatypes or None in datatypes.values() or None in outputs:
        return {}
    known = {name: datatype for name, datatype in datatypes.items() if datatype is not None}
    asked = _asked(signature, in_json=all(output is not None and output.has_json for output in outputs))
    binary = _binary(signature, known, asked, string)
    examples = {media.BYTES: binary} if _is_infer_read(binary, signature) else {}
    if all(datatype.has_json for datatype in known.values()):
        text = json.dumps({**asked, "inputs": _inputs_of_json(signature, known, string)}).encode()
        example = InferExample(text, len(text))
        examples |= {media.JSON: example} if _is_infer_read(example, signature) else {}
    return examples


def _asked(signature: Signature, *, in_json: bool) -> dict[str, Any]:
    """Parameters that ask for a signature of another name, and for outputs that JSON does not carry."""
    named = {} if signature.name == DEFAULT_SIGNATURE else {"signature": signature.name}
    parameters = {**named, **({} if in_json else {BINARY_DATA_OUTPUT: True})}
    return {"parameters": parameters} if parameters else {}


def _inputs_of_json(
    signature: Signature, known: Mapping[str, Datatype], string: bytes
) -> list[dict[str, Any]]:
    values = {
        name: sample_value((math.prod(sample_sizes(spec)),), spec.dtype, json_string(string))
        for name, spec in signature.inputs.items()
    }
    return [
        {**_head(name, spec, known[name]), "data": values[name]} for name, spec in signature.inputs.items()
    ]


def _binary(
    signature: Signature, known: Mapping[str, Datatype], asked: Mapping[str, Any], string: bytes
) -> InferExample:
    arrays = {name: sample_array(spec, string) for name, spec in signature.inputs.items()}
    raws = {name: bytes(to_raw(array, known[name])) for name, array in arrays.items()}
    inputs = [
        {**_head(name, spec, known[name]), "parameters": {BINARY_DATA_SIZE: len(raws[name])}}
        for name, spec in signature.inputs.items()
    ]
    text = json.dumps({**asked, "inputs": inputs}).encode()
    return InferExample(text + b"".join(raws.values()), len(text))


def _head(name: str, spec: TensorSpec, datatype: Datatype) -> dict[str, Any]:
    return {"name": name, "shape": list(sample_sizes(spec)), "datatype": datatype.name}


def _is_infer_read(example: InferExample, signature: Signature) -> bool:
    try:
        read_request(example.body, example.json_bytes, MemoryBudget()).batch(signature)
    except RequestError:
        return False
    return True
