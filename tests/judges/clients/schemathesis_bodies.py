"""Bodies of our media types for schemathesis, all but JSON: the document's samples damaged, and any bytes."""

import base64
from collections.abc import Mapping
from typing import Any

import schemathesis
from hypothesis import strategies as st

ANY_TYPE = "*/*"
TYPES = ("application/json", "application/jsonlines", "text/csv", "application/x-npy", "application/x")
"""What is sent if the document takes any type; the last is nobody's."""

MOST_BYTES = 200


def register(document: Mapping[str, Any]) -> None:
    """Register a generator for every media type that is not JSON and has a sample, or stands for any type."""
    others: dict[str, list[bytes]] = {name: [] for name in TYPES if name != "application/json"}
    for media_type, samples in {**others, **samples_by_type(document)}.items():
        bodies = st.one_of(st.binary(max_size=MOST_BYTES), *(damaged(sample) for sample in samples))
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
