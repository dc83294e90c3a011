"""Media Type Objects: schema and example of a body by its media type, aliases of the registry included."""

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from tfs_proxy.openapi.tensors import Schema
from tfs_proxy.payload import media_types as media
from tfs_proxy.payload.registry import ALIASES, FORMATS, format_of

Content = dict[str, Any]

INPUT_NAMES = "x-inputs"
"""An extension of an operation: the inputs of the signature that CSV is read by."""

LONGEST_EXAMPLE_BYTES = 256 * 1024
"""Longer bodies are left out: a document is to be read."""

TEXT_SCHEMA: Schema = {"type": "string"}


def json_content(schema: Schema, example: Any = None) -> Content:
    """A body of JSON; ``example`` is a value, None if there is none."""
    described: Content = {"schema": schema}
    if example is not None:
        described["example"] = example
    return {media.JSON: described}


def binary_schema(media_type: str) -> Schema:
    """Bytes that are no text, as OpenAPI 3.1 describes them."""
    return {"contentMediaType": media_type}


def body_schema(media_type: str) -> Schema:
    """The schema of a body whose values have none."""
    row = format_of(media_type)
    if row is None:
        return {}
    if row.name == media.JSON:
        return {}
    return TEXT_SCHEMA if row.is_text else binary_schema(row.name)


def with_aliases(names: Iterable[str]) -> list[str]:
    """Media types and then their other names."""
    canonical = list(names)
    return [*canonical, *(alias for alias, name in ALIASES.items() if name in canonical)]


def content_of(
    schemas: Mapping[str, Mapping[str, Any]], examples: Mapping[str, bytes] | None = None
) -> Content:
    """Bodies by media type, each with its schema and, if there is one, its example."""
    content: Content = {}
    for name, schema in schemas.items():
        content[name] = {"schema": schema}
        body = (examples or {}).get(ALIASES.get(name, name), (examples or {}).get(name))
        if body is not None and len(body) <= LONGEST_EXAMPLE_BYTES:
            content[name]["examples"] = {"sample": example_object(name, body)}
    return content


def example_object(media_type: str, body: bytes) -> dict[str, Any]:
    """An Example Object: JSON as a value, text as a string, bytes as a ``data:`` URI (RFC 2397)."""
    row = FORMATS.get(ALIASES.get(media_type, media_type))
    if is_json(media_type):
        try:
            return {"value": json.loads(body)}
        except ValueError:
            pass
    elif (row is not None and row.is_text) or media_type.startswith("text/"):
        try:
            return {"value": body.decode()}
        except UnicodeDecodeError:
            pass
    return {"externalValue": f"data:{media_type};base64,{base64.b64encode(body).decode()}"}


def is_json(media_type: str) -> bool:
    """Whether a body of this type is one JSON document."""
    name = media_type.partition(";")[0]
    return name == media.JSON or name.endswith("+json")
