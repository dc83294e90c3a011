"""Parts that many operations share: bodies, errors, headers, and those of parts.json."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

from tfs_proxy.data.registry import ALIASES, FORMATS, format_of
from tfs_proxy.model.openapi.tensors import Schema
from tfs_proxy.values.attributes import ATTRIBUTES
from tfs_proxy.values.names import LOADED_MODEL
from tfs_proxy.wire import media_types as media
from tfs_proxy.wire.header_names import REQUEST_ID

Content = dict[str, Any]

INPUT_NAMES = "x-inputs"
"""Extension of an operation: the inputs of the signature for which CSV is read."""

LONGEST_EXAMPLE_BYTES = 256 * 1024
"""Longest example; longer ones are left out, since people read the document."""


def json_content(schema: Schema, example: Any = None) -> Content:
    """Content of a JSON body; ``example`` is a value, None if there is none."""
    described: Content = {"schema": schema}
    if example is not None:
        described["example"] = example
    return {media.JSON: described}


def binary_schema(media_type: str) -> Schema:
    return {"contentMediaType": media_type}


def body_schema(media_type: str) -> Schema:
    row = format_of(media_type)
    if row is None:
        return {}
    if row.name == media.JSON:
        return {}
    return {"type": "string"} if row.is_text else binary_schema(row.name)


def with_aliases(names: Iterable[str]) -> list[str]:
    canonical = list(names)
    return [*canonical, *(alias for alias, name in ALIASES.items() if name in canonical)]


def content_of(
    schemas: Mapping[str, Mapping[str, Any]], examples: Mapping[str, bytes] | None = None
) -> Content:
    """Content by media type, each with its schema and its example, if there is one."""
    content: Content = {}
    for name, schema in schemas.items():
        content[name] = {"schema": schema}
        body = (examples or {}).get(ALIASES.get(name, name), (examples or {}).get(name))
        if body is not None and len(body) <= LONGEST_EXAMPLE_BYTES:
            content[name]["examples"] = {"sample": example_object(name, body)}
    return content


def example_object(media_type: str, body: bytes) -> dict[str, Any]:
    """Make an Example Object: JSON as a value, text as a string, bytes as a ``data:`` URI (RFC 2397)."""
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
    """True if a body of this type is a single JSON document."""
    name = media_type.partition(";")[0]
    return name == media.JSON or name.endswith("+json")


Part = dict[str, Any]

ANYTHING = "*/*"


EVERYWHERE = (400, 404, 405, 408, 413, 414, 431, 500, 503, 504)
WITH_BODY = (*EVERYWHERE, 411, 415, 501)
CONVERTED = (*WITH_BODY, 406, 429)


@cache
def static_parts() -> Mapping[str, Any]:
    """Parts that depend on no model, from parts.json, where operations are abbreviated."""
    text = (files(__package__) / "parts.json").read_text(encoding="utf-8")
    values = {"LOADED_MODEL": json.dumps(LOADED_MODEL)[1:-1], "ATTRIBUTES": ", ".join(ATTRIBUTES)}
    return json.loads(Template(text).safe_substitute(values))  # type: ignore[no-any-return]


def static_paths(name: str) -> Part:
    """Paths of parts.json, with the headers and errors that each operation has."""
    return {
        path: {method: _whole(operation) for method, operation in methods.items()}
        for path, methods in static_parts()[name].items()
    }


def _whole(abridged: Part) -> Part:
    own = {key: abridged[key] for key in ("operationId", "summary", "tags")}
    body = {"requestBody": abridged["requestBody"]} if "requestBody" in abridged else {}
    by_script = {"default": answered_by_script()} if abridged.get("by_script") else {}
    return {
        **own,
        "parameters": [*abridged.get("parameters", ()), *of_request()],
        **body,
        "responses": {
            "200": answer(**abridged["answer"]),
            **errors((*EVERYWHERE, *abridged.get("errors", ()))),
            **by_script,
        },
    }


def static_answer(name: str) -> Content:
    return json_content(static_parts()["answers"][name])


def errors(statuses: Iterable[int]) -> Part:
    return {f"{status}": {"$ref": f"#/components/responses/{status}"} for status in sorted(statuses)}


def answer(description: str, content: Part | None = None, headers: Part | None = None) -> Part:
    described: Part = {"description": description, "headers": {**_request_id(), **(headers or {})}}
    if content is not None:
        described["content"] = content
    return described


def answered_by_script() -> Part:
    """Answer ``default``, for operations that a script may answer."""
    return answer(
        "Any status that the script chooses.",
        {**json_content({"$ref": "#/components/schemas/Error"}), ANYTHING: {}},
    )


def shared_answers(max_payload_bytes: int) -> Part:
    """Error answers by status, with the same schema; bodies may have ``max_payload_bytes``."""
    return {
        status: {
            "description": text.replace("${MAX_BYTES}", f"{max_payload_bytes:,}"),
            "headers": {**_request_id(), **_extra_headers(status)},
            "content": json_content({"$ref": "#/components/schemas/Error"}),
        }
        for status, text in static_parts()["errors"].items()
    }


def _request_id() -> Part:
    return {REQUEST_ID: {"$ref": f"#/components/headers/{REQUEST_ID}"}}


def _extra_headers(status: str) -> Part:
    match status:
        case "405":
            return {"Allow": {"description": "The methods of the path.", "schema": {"type": "string"}}}
        case "503":
            seconds = "Seconds after which the request may be sent again."
            return {"Retry-After": {"description": seconds, "schema": {"type": "integer"}}}
        case _:
            return {}


def of_request(*names: str) -> list[Part]:
    """References to the headers that every request may have, and to named parameters."""
    everywhere = ("RequestId", "InferenceId", "TraceParent")
    return [{"$ref": f"#/components/parameters/{name}"} for name in (*names, *everywhere)]


def path_parameter(name: str, pattern: str, values: Sequence[object] = ()) -> Part:
    """Path parameter: one of ``values`` if they are known, else a match of ``pattern``."""
    schema: Schema = {"type": "string", "enum": [f"{value}" for value in values]}
    if not values:
        schema = {"type": "string", "pattern": f"^{pattern}$"}
    described: Part = {"name": name, "in": "path", "required": True, "schema": schema}
    return {**described, "example": f"{values[-1]}"} if values else described
