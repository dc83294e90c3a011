"""The script of the ResNet-50 model for TFRecords: a tf.Example in, TF Serving's prediction on one line out.

It needs no tensorflow: a tf.Example is a few nested length-prefixed fields, and only those on the way to
`image/encoded` are read.
"""

import base64
import json
from collections.abc import Iterator
from typing import Any

IMAGE = b"image/encoded"
FIELD_1, FIELD_2 = 0x0A, 0x12  # protobuf tags: field number and "length-delimited"


def input_handler(data: Any, context: Any) -> str:  # noqa: ARG001
    """One serialized tf.Example as TF Serving's JSON; binary values travel as base64 under the key b64."""
    encoded = base64.b64encode(image_of(data.read())).decode()
    return json.dumps({"instances": [{"image_bytes": {"b64": encoded}}]})


def output_handler(response: Any, context: Any) -> tuple[str, str]:  # noqa: ARG001
    """The model's answer without line breaks, so that each record is one line of the output."""
    return json.dumps(json.loads(response.content), separators=(",", ":")), "application/jsonlines"


def image_of(example: bytes) -> bytes:
    """The bytes of `image/encoded`: Example.features.feature[name].bytes_list.value[0]."""
    for entry in fields(fields_one(example, FIELD_1), FIELD_1):
        if fields_one(entry, FIELD_1) == IMAGE:
            return fields_one(fields_one(fields_one(entry, FIELD_2), FIELD_1), FIELD_1)
    raise ValueError("the record is not a tf.Example with a feature image/encoded")


def fields_one(message: bytes, tag: int) -> bytes:
    """The first field with this tag; empty if there is none."""
    return next(fields(message, tag), b"")


def fields(message: bytes, tag: int) -> Iterator[bytes]:
    """Every field with this tag, in order."""
    at = 0
    while at < len(message):
        found = message[at]
        if found not in {FIELD_1, FIELD_2, 0x1A}:
            raise ValueError("the record is not a tf.Example")
        size, at = varint(message, at + 1)
        if found == tag:
            yield message[at : at + size]
        at += size


def varint(message: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, lowest first, and where it ends."""
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
