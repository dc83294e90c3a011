"""Writes the JSON schemas of the files that commands read, for editors; `make schemas` runs it.

A transform job's comes from botocore's model of the call, which the command checks the file with, too.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StringShape, StructureShape
from botocore.session import get_session

FOLDER = Path(__file__).parents[1] / "src" / "tfs_proxy" / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
TYPES = {"boolean": "boolean", "integer": "integer", "long": "integer", "float": "number", "double": "number"}


def numbers(one: Mapping[str, Any]) -> Mapping[str, Any]:
    """One number, or a list of them."""
    return {"anyOf": [one, {"type": "array", "minItems": 1, "items": one}]}


STANDARDIZE: Mapping[str, Any] = {
    "title": "Means and standard deviations of a model's inputs: tfs-proxy pack --standardize",
    "type": "object",
    "minProperties": 1,
    "additionalProperties": {
        "type": "object",
        "properties": {
            "mean": {
                "description": "A number for each column, or one for all; it is subtracted.",
                **numbers({"type": "number"}),
            },
            "std": {
                "description": "As many numbers, which are divided by then.",
                **numbers({"type": "number", "exclusiveMinimum": 0}),
            },
        },
        "required": ["mean", "std"],
        "additionalProperties": False,
    },
}


def transform_job() -> Mapping[str, Any]:
    """The schema of a CreateTransformJob request."""
    model = get_session().get_service_model("sagemaker").operation_model("CreateTransformJob")
    title = "A batch transform job, as CreateTransformJob takes it: tfs-proxy transform"
    return {"title": title, **schema_of(model.input_shape)}


def schema_of(shape: Shape | None) -> Mapping[str, Any]:
    """The schema of one of botocore's shapes. Names of a closed set are offered, not demanded, as there."""
    match shape:
        case StructureShape():
            return {
                "type": "object",
                "properties": {name: schema_of(member) for name, member in shape.members.items()},
                "required": list(shape.required_members),
                "additionalProperties": False,
            }
        case ListShape():
            return {"type": "array", "items": schema_of(shape.member), **least(shape, "minItems")}
        case MapShape():
            return {"type": "object", "additionalProperties": schema_of(shape.value)}
        case StringShape():
            any_text = {"type": "string", **least(shape, "minLength")}
            return {"anyOf": [{"enum": list(shape.enum)}, any_text]} if shape.enum else any_text
        case None:
            return {}
    return {"type": TYPES[shape.type_name], **least(shape, "minimum")}


def least(shape: Shape, keyword: str) -> Mapping[str, Any]:
    """The lower bound, which is all that botocore checks."""
    return {keyword: shape.metadata["min"]} if "min" in shape.metadata else {}


def text_of(schema: Mapping[str, Any]) -> str:
    """A schema as its file has it."""
    return json.dumps({"$schema": DIALECT, **schema}, indent=2) + "\n"


def schemas() -> Mapping[str, str]:
    """Every file by its name."""
    return {"standardize.json": text_of(STANDARDIZE), "transform-job.json": text_of(transform_job())}


if __name__ == "__main__":
    for name, text in schemas().items():
        (FOLDER / name).write_text(text)
