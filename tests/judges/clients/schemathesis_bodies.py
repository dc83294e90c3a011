"""Bodies of our media types for schemathesis, all but JSON: well-formed ones, and the document's samples damaged."""

import base64
import json
import struct
from collections.abc import Mapping
from typing import Any

import schemathesis
from hypothesis import strategies as st

Bodies = st.SearchStrategy[bytes]

NPY_TYPES = {"<f4": "f", "<f8": "d", "<i4": "i", "<i8": "q", "|u1": "B", "|b1": "?"}
ANY_TYPE = "*/*"
TYPES = ("application/json", "application/jsonlines", "text/csv", "application/x-npy", "application/x")
"""What is sent if the document takes any type; the last is nobody's."""

MOST_BYTES = 200
MOST_SIZE = 3
CRC_POLYNOMIAL = 0x82F63B78


def register(document: Mapping[str, Any]) -> None:
    """Register a generator for every media type that is not JSON and has a sample, or stands for any type."""
    others: dict[str, list[bytes]] = {name: [] for name in TYPES if name != "application/json"}
    for media_type, samples in {**others, **samples_by_type(document)}.items():
        bodies = st.one_of(*generators(media_type), *(damaged(sample) for sample in samples))
        schemathesis.openapi.media_type(media_type, bodies)


def with_types(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with some types for bodies of any type: a request has to name one."""
    paths = {
        path: {method: _with_types(operation) for method, operation in item.items()}
        for path, item in document["paths"].items()
    }
    return {**document, "paths": paths}


def _with_types(operation: Mapping[str, Any]) -> Mapping[str, Any]:
    body = operation.get("requestBody", {})
    content = body.get("content", {})
    if ANY_TYPE not in content:
        return operation
    named = {name: described for name, described in content.items() if name != ANY_TYPE}
    types = dict.fromkeys(TYPES, content[ANY_TYPE])
    return {**operation, "requestBody": {**body, "content": {**types, **named}}}


def samples_by_type(document: Mapping[str, Any]) -> dict[str, list[bytes]]:
    """The samples that are ``data:`` URIs or text, by media type."""
    found: dict[str, list[bytes]] = {}
    for item in document["paths"].values():
        for operation in item.values():
            for media_type, described in operation.get("requestBody", {}).get("content", {}).items():
                for example in described.get("examples", {}).values():
                    if media_type != "application/json":
                        found.setdefault(media_type, []).append(_bytes(example))
    return found


def _bytes(example: Mapping[str, str]) -> bytes:
    if "value" in example:
        return example["value"].encode()
    return base64.b64decode(example["externalValue"].partition(";base64,")[2])


def generators(media_type: str) -> list[Bodies]:
    """Well-formed bodies of a type, and bytes that are nothing."""
    known = {
        "npy": npy(),
        "tfrecord": tfrecords(),
        "octet-stream": open_inference(),
        "csv": rows(),
        "json": lines(),
        "lines": lines(),
        "jsons": lines(),
    }
    named = [bodies for ending, bodies in known.items() if media_type.endswith(ending)]
    return [st.binary(max_size=MOST_BYTES), *named]


def rows() -> Bodies:
    """CSV of numbers, the rows of different lengths now and then."""
    cells = st.one_of(st.floats(width=32).map(str), st.integers().map(str), st.sampled_from(("", '"1"', "x")))
    row = st.lists(cells, min_size=1, max_size=MOST_SIZE).map(",".join)
    return st.lists(row, max_size=4).map(lambda lines: "\n".join(lines).encode())


def lines() -> Bodies:
    """JSON documents, one a line: numbers, lists, objects."""
    values = st.recursive(
        st.one_of(st.floats(), st.integers(), st.text(max_size=3), st.none(), st.booleans()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=2), inner, max_size=2)
        ),
        max_leaves=5,
    )
    return st.lists(values.map(json.dumps), max_size=4).map(lambda lines: "\n".join(lines).encode())


@st.composite
def damaged(draw: st.DrawFn, sample: bytes) -> bytes:
    """The sample as it is, cut off, repeated, or with some bytes changed."""
    kind = draw(st.sampled_from(("as it is", "cut", "repeated", "changed")))
    if kind == "cut":
        return sample[: draw(st.integers(0, len(sample)))]
    if kind == "repeated":
        return sample * draw(st.integers(2, 3))
    body = bytearray(sample)
    if kind == "changed":
        for _ in range(draw(st.integers(1, 4))):
            body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    return bytes(body)


@st.composite
def npy(draw: st.DrawFn) -> bytes:
    descr = draw(st.sampled_from(sorted(NPY_TYPES)))
    shape = tuple(draw(st.lists(st.integers(0, MOST_SIZE), max_size=MOST_SIZE)))
    count = 1
    for size in shape:
        count *= size
    item_bytes = struct.calcsize(NPY_TYPES[descr])
    values = draw(st.binary(min_size=count * item_bytes, max_size=count * item_bytes))
    header = f"{{'descr': '{descr}', 'fortran_order': {draw(st.booleans())}, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + values


@st.composite
def tfrecords(draw: st.DrawFn) -> bytes:
    payloads = draw(st.lists(st.binary(max_size=MOST_BYTES), min_size=1, max_size=3))
    return b"".join(_tfrecord(payload) for payload in payloads)


def _tfrecord(payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    return length + _masked_crc(length) + payload + _masked_crc(payload)


def _masked_crc(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (CRC_POLYNOMIAL if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


@st.composite
def open_inference(draw: st.DrawFn) -> bytes:
    """The JSON of the Open Inference Protocol and a tensor behind it, whose size may be another."""
    values = draw(st.binary(max_size=MOST_BYTES))
    size_bytes = draw(st.one_of(st.just(len(values)), st.integers(-1, MOST_BYTES)))
    tensor = {
        "name": draw(st.sampled_from(("x", "y", ""))),
        "shape": draw(st.lists(st.integers(-1, MOST_BYTES), max_size=3)),
        "datatype": draw(st.sampled_from(("FP32", "FP16", "BF16", "INT64", "BYTES", "BOOL", "?"))),
        "parameters": {"binary_data_size": size_bytes},
    }
    return json.dumps({"inputs": [tensor]}).encode() + values
