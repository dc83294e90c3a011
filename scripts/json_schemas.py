"""Writes the JSON schemas of the files that commands read, for editors; `make schemas` runs it.

A transform job's comes from botocore's model of the call, which the command checks the file with, too.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StringShape, StructureShape
from botocore.session import get_session

from tfs_proxy.tools.endpoint.operations import OPERATIONS

FOLDER = Path(__file__).parents[1] / "src" / "tfs_proxy" / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
FEW = 20
TYPES = {"boolean": "boolean", "integer": "integer", "long": "integer", "float": "number", "double": "number"}


def one_or_more(one: Mapping[str, Any]) -> Mapping[str, Any]:
    """One of a kind, or a list of them."""
    return {"anyOf": [one, {"type": "array", "minItems": 1, "items": one}]}


def transform_job() -> Mapping[str, Any]:
    """The schema of a CreateTransformJob request."""
    model = get_session().get_service_model("sagemaker").operation_model("CreateTransformJob")
    title = "A batch transform job, as CreateTransformJob takes it: tfs-proxy transform"
    return {"title": title, **schema_of(model.input_shape)}


def schema_of(shape: Shape | None, shared: dict[str, Any] | None = None) -> Mapping[str, Any]:
    """The schema of one of botocore's shapes. Names of a closed set are offered, not demanded, as there.

    Those of long sets go into ``shared``, if it is given, once for all places.
    """
    match shape:
        case StructureShape():
            return {
                "type": "object",
                "properties": {name: schema_of(member, shared) for name, member in shape.members.items()},
                "required": list(shape.required_members),
                "additionalProperties": False,
            }
        case ListShape():
            return {"type": "array", "items": schema_of(shape.member, shared), **least(shape, "minItems")}
        case MapShape():
            return {"type": "object", "additionalProperties": schema_of(shape.value, shared)}
        case StringShape():
            return text_schema(shape, shared)
        case None:
            return {}
    return {"type": TYPES[shape.type_name], **least(shape, "minimum")}


def text_schema(shape: StringShape, shared: dict[str, Any] | None) -> Mapping[str, Any]:
    """The schema of a text, which may be one of a set of names."""
    any_text = {"type": "string", **least(shape, "minLength")}
    offered = {"anyOf": [{"enum": list(shape.enum)}, any_text]} if shape.enum else any_text
    if shared is None or len(shape.enum or ()) < FEW:
        return offered
    shared[shape.name] = offered
    return {"$ref": f"#/$defs/{shape.name}"}


def endpoint_config() -> Mapping[str, Any]:
    """The schema of what an endpoint is described by: requests by operation, or one bare request."""
    model = get_session().get_service_model("sagemaker")
    shared: dict[str, Any] = {}
    requests = {name: schema_of(model.operation_model(name).input_shape, shared) for name in OPERATIONS}
    by_operation = {
        "type": "object",
        "properties": {
            **{name: one_or_more({"$ref": f"#/$defs/{name}"}) for name in OPERATIONS},
            "$schema": {"type": "string"},
        },
        "minProperties": 1,
        "additionalProperties": False,
    }
    return {
        "title": "Endpoints, by requests as AWS takes them: tfs-proxy endpoint",
        "anyOf": [by_operation, *({"$ref": f"#/$defs/{name}"} for name in OPERATIONS)],
        "$defs": {**requests, **shared},
    }


def least(shape: Shape, keyword: str) -> Mapping[str, Any]:
    """The lower bound, which is all that botocore checks."""
    return {keyword: shape.metadata["min"]} if "min" in shape.metadata else {}


def text_of(schema: Mapping[str, Any]) -> str:
    """A schema as its file has it."""
    return json.dumps({"$schema": DIALECT, **schema}, indent=2) + "\n"


def schemas() -> Mapping[str, str]:
    """Every file by its name."""
    return {
        "transform-job.json": text_of(transform_job()),
        "endpoint.json": text_of(endpoint_config()),
    }


if __name__ == "__main__":
    for name, text in schemas().items():
        (FOLDER / name).write_text(text)
