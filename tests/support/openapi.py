"""Reads an OpenAPI document as a client does: its operations, and a request for each of its examples."""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

METHODS = ("get", "post", "put", "delete")


@dataclass(frozen=True)
class Sample:
    """A request that the document gives as an example; ``media_type`` is None if it has no body."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    media_type: str | None = None


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Path, method and Operation Object of each."""
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method.upper(), item[method]


def resolved(document: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a node is, or refers to."""
    if "$ref" not in node:
        return node
    found: Any = document
    for part in node["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return resolved(document, found)


def samples(document: Mapping[str, Any]) -> Iterator[Sample]:
    """A request for every example of a body, and one for every operation without a body."""
    for path, method, operation in operations(document):
        parameters = [resolved(document, each) for each in operation.get("parameters", ())]
        filled = _filled(path, parameters)
        if filled is None:
            continue
        content = operation.get("requestBody", {}).get("content")
        if content is None:
            yield Sample(method, filled)
        else:
            for media_type, described in content.items():
                body = _example(described)
                if body is not None:
                    yield Sample(method, filled, {"Content-Type": media_type}, body, media_type)


def _filled(path: str, parameters: list[Mapping[str, Any]]) -> str | None:
    """The path with the examples of its parameters; None if one has none."""
    for parameter in parameters:
        if parameter["in"] == "path":
            if "example" not in parameter:
                return None
            path = path.replace(f"{{{parameter['name']}}}", parameter["example"])
    return path


def _example(described: Mapping[str, Any]) -> bytes | None:
    if "example" in described:
        return json.dumps(described["example"]).encode()
    for example in described.get("examples", {}).values():
        if "externalValue" in example:
            return base64.b64decode(example["externalValue"].partition(";base64,")[2])
        value = example["value"]
        return value.encode() if isinstance(value, str) else json.dumps(value).encode()
    return None
