"""The parts that many operations share: errors, headers, parameters, and schemas without a signature."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tfs_proxy.attributes import ATTRIBUTES
from tfs_proxy.openapi.tensors import NESTED, TEXT, Schema
from tfs_proxy.payload import media_types as media
from tfs_proxy.payload.registry import ALIASES, FORMATS, format_of
from tfs_proxy.script.values import LONGEST_ATTRIBUTES
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES, INFERENCE_ID, REQUEST_ID, TRACEPARENT

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


Part = dict[str, Any]

ANYTHING = "*/*"

ERROR: Schema = {"$ref": "#/components/schemas/Error"}

ERRORS: dict[int, str] = {
    400: "The request is malformed, or its values do not fit the model: the sentence says where.",
    404: "There is no such path, model, version or label.",
    405: "The path does not take this method; Allow names those that it takes.",
    406: "The answer can't be in a type that Accept names.",
    408: "The request did not arrive in time.",
    409: "The model is loaded already, or its name is taken.",
    411: "A Content-Length is needed.",
    414: "The URI is too long.",
    415: "The body's Content-Type, Content-Encoding or charset can't be read.",
    429: "Too many requests are under way.",
    431: "The headers are too large.",
    499: "The call was cancelled.",
    500: "An error of the server, of the model, or of the script: see the log.",
    501: "The model server does not implement this for the model's types, or the server the transfer coding.",
    503: "Not ready, or too busy; the request may be sent again.",
    504: "No answer in time.",
    507: "There is not enough memory for the model.",
}
EVERYWHERE = (400, 404, 405, 408, 413, 414, 431, 500, 503, 504)
WITH_BODY = (*EVERYWHERE, 411, 415, 501)
CONVERTED = (*WITH_BODY, 406, 429)


PATTERN_OF_ATTRIBUTES = r"^[\x20-\x7e]*$"


def errors(statuses: Iterable[int]) -> Part:
    """References to the answers of these statuses, for an operation."""
    return {f"{status}": {"$ref": f"#/components/responses/{status}"} for status in sorted(statuses)}


def answer(description: str, content: Part | None = None, headers: Part | None = None) -> Part:
    """An answer that is not an error."""
    described: Part = {"description": description, "headers": {**_request_id(), **(headers or {})}}
    if content is not None:
        described["content"] = content
    return described


def answered_by_script() -> Part:
    """What stands under ``default`` if a script may answer."""
    return answer("Any status that the script chooses.", {**json_content(ERROR), ANYTHING: {}})


def shared_answers(max_payload_bytes: int) -> Part:
    """Every error by its status, all of one shape; bodies may have so many bytes."""
    limit = f"The body is larger than {max_payload_bytes:,} bytes, packed or unpacked."
    return {
        f"{status}": {
            "description": text,
            "headers": {**_request_id(), **_extra_headers(status)},
            "content": json_content(ERROR),
        }
        for status, text in sorted({**ERRORS, 413: limit}.items())
    }


def _request_id() -> Part:
    return {REQUEST_ID: {"$ref": f"#/components/headers/{REQUEST_ID}"}}


def _extra_headers(status: int) -> Part:
    match status:
        case 405:
            return {"Allow": {"description": "The methods of the path.", "schema": {"type": "string"}}}
        case 503:
            seconds = "Seconds after which the request may be sent again."
            return {"Retry-After": {"description": seconds, "schema": {"type": "integer"}}}
        case _:
            return {}


def shared_headers() -> Part:
    """Headers of answers."""
    return {
        REQUEST_ID: {
            "description": "The id of the request in the log: the client's own, or a new one.",
            "schema": {"type": "string"},
        },
        CUSTOM_ATTRIBUTES: {"description": "What the script answers.", "schema": {"type": "string"}},
    }


def shared_parameters() -> Part:
    """Headers of requests."""
    return {
        "CustomAttributes": _header(
            CUSTOM_ATTRIBUTES,
            f"Comma separated key=value: {', '.join(ATTRIBUTES)} choose what answers.",
            {"type": "string", "maxLength": LONGEST_ATTRIBUTES, "pattern": PATTERN_OF_ATTRIBUTES},
        ),
        "RequestId": _header(REQUEST_ID, "The id of the request in the log.", _visible(128)),
        "InferenceId": _header(INFERENCE_ID, "SageMaker's id of the request, for the log.", _visible(64)),
        "TraceParent": _header(TRACEPARENT, "The trace that the request belongs to (W3C).", _visible(128)),
    }


def of_request(*names: str) -> list[Part]:
    """References to the headers that every request may have, and to parameters by name."""
    everywhere = ("RequestId", "InferenceId", "TraceParent")
    return [{"$ref": f"#/components/parameters/{name}"} for name in (*names, *everywhere)]


def _header(name: str, description: str, schema: Schema) -> Part:
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


def path_parameter(name: str, pattern: str, values: Sequence[object] = ()) -> Part:
    """A part of a path: one of ``values`` if they are known, else what ``pattern`` matches."""
    schema: Schema = {"type": "string", "enum": [f"{value}" for value in values]}
    if not values:
        schema = {"type": "string", "pattern": f"^{pattern}$"}
    described: Part = {"name": name, "in": "path", "required": True, "schema": schema}
    return {**described, "example": f"{values[-1]}"} if values else described


def _visible(characters: int) -> Schema:
    return {"type": "string", "pattern": rf"^[\x21-\x7e]{{1,{characters}}}$"}


def shared_schemas() -> Part:
    """Errors, and values of any shape."""
    return {
        "Error": {
            "type": "object",
            "properties": {"error": {"type": "string", "description": "A sentence for people."}},
            "required": ["error"],
        },
        "Text": {
            "description": "Text as a string; bytes in base64 as an object.",
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "properties": {"b64": {"type": "string", "contentEncoding": "base64"}},
                    "required": ["b64"],
                    "additionalProperties": False,
                },
            ],
        },
        "Tensor": {
            "description": "A value, or lists of values, row-major. In answers, numbers that are not finite "
            "stand as TF Serving writes them: NaN, Infinity and -Infinity.",
            "anyOf": [
                {"type": ["number", "boolean"]},
                TEXT,
                {"type": "array", "items": NESTED},
            ],
        },
        "Features": {
            "description": "Features by name, for classify and regress.",
            "type": "object",
            "additionalProperties": NESTED,
        },
    }
