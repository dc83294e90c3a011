"""Examples of bodies with one record for each media type of a signature, by the formats' own writers."""

import base64
import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from tfs_proxy.data.formats.framing import recordio_frame, tfrecord_frame
from tfs_proxy.data.formats.npy import npy_of_outputs, write_npz
from tfs_proxy.data.formats.outputs import csv_of_outputs, lines_of_outputs
from tfs_proxy.data.open_inference.datatypes import datatype_of
from tfs_proxy.data.open_inference.infer_request import BINARY_DATA_OUTPUT
from tfs_proxy.data.open_inference.json_request import read_request
from tfs_proxy.data.registry import FORMATS, decode
from tfs_proxy.data.shapes import has_records, misfits
from tfs_proxy.model.graph_inputs import Features, GraphInputs
from tfs_proxy.model.report.served import SAMPLE_TEXT, sample_inputs, sample_sizes, sample_value
from tfs_proxy.values.batch import BYTES, Outputs
from tfs_proxy.values.errors import RequestError
from tfs_proxy.values.memory import MemoryBudget
from tfs_proxy.values.signature import DEFAULT_SIGNATURE, Signature
from tfs_proxy.wire import media_types as media
from tfs_proxy.wire.dtypes import array_type
from tfs_proxy.wire.protos import Example, RecordIORecord

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAIAAAD8GO2jAAAAJklEQVR42u3NMQ0AAAwDoEqv9KrYsQQMkB6LQCAQCAQCgUAg"
    "+BIMLd4AWwUPN68AAAAASUVORK5CYII="
)
"""Picture of 32 x 32 grey pixels with three channels, of which a decoder makes any number."""

JPEG = base64.b64decode(
    "/9j/2wBDAAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQH/"
    "wAARCAAgACADAREAAhEAAxEA/8QAFAABAAAAAAAAAAAAAAAAAAAAAP/EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAMAwEAAgAD"
    "AAA/AAAAAAAAAAAAAAAAAP/Z"
)

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
    """Write a serialized tf.Example."""
    example = Example()
    for name, array in arrays.items():
        kind = {"O": "bytes_list", "f": "float_list"}.get(array.dtype.kind, "int64_list")
        getattr(example.features.feature[name], kind).value.extend(array.ravel().tolist())
    return example.SerializeToString(deterministic=True)


def _arrays(features: Features, graph: GraphInputs) -> Outputs | None:
    string = _text_or_picture(graph)
    if string is None and any(spec.dtype == "DT_STRING" for spec in features.values()):
        return None
    arrays = {}
    for name, spec in features.items():
        dtype = array_type(spec)
        value: Any = (string or ANY_STRING) if dtype == BYTES else 1
        arrays[name] = np.full((1, math.prod(sample_sizes(spec))), value, dtype)
    return arrays


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
    inputs: dict[str, npt.NDArray[Any]] = {}
    for name, spec in signature.inputs.items():
        try:
            dtype = array_type(spec)
        except RequestError:
            return {}
        value: Any = 1
        if dtype == BYTES:
            value = string
        elif dtype.kind == "b":
            value = True
        inputs[name] = np.full(sample_sizes(spec), value, dtype)
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


def infer_example(signature: Signature, string: bytes) -> Mapping[str, Any] | None:
    """An inference of the Open Inference Protocol in JSON, with ``string`` for every string.

    It has been read back: None if JSON can't carry the inputs.
    """
    datatypes = {name: datatype_of(spec) for name, spec in signature.inputs.items()}
    outputs = [datatype_of(spec) for spec in signature.outputs.values()]
    if not datatypes or None in outputs or not all(each and each.has_json for each in datatypes.values()):
        return None
    parameters: dict[str, Any] = {}
    if signature.name != DEFAULT_SIGNATURE:
        parameters["signature"] = signature.name
    if not all(each and each.has_json for each in outputs):
        parameters[BINARY_DATA_OUTPUT] = True
    inputs = [
        {
            "name": name,
            "shape": list(sample_sizes(spec)),
            "datatype": datatype.name,
            "data": sample_value((math.prod(sample_sizes(spec)),), spec.dtype, json_string(string)),
        }
        for name, spec in signature.inputs.items()
        if (datatype := datatypes[name]) is not None
    ]
    example = {**({"parameters": parameters} if parameters else {}), "inputs": inputs}
    text = json.dumps(example).encode()
    try:
        read_request(text, len(text), MemoryBudget()).batch(signature)
    except RequestError:
        return None
    return example
