"""KServe's own description of its resources as a JSON schema.

It is in the models of KServe's Python SDK, which are generated from its API. They are read as text: to
import them is to import its servers.
"""

import ast
import re
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

PLAIN = {"str": "string", "bool": "boolean", "int": "integer", "float": "number", "object": "object"}


def schema(model: str) -> dict[str, Any]:
    """An object with the fields of ``model``, as ``V1alpha1ServingRuntime``, and no others."""
    text = _source(model).read_text()
    types, names = (_table(text, table) for table in ("openapi_types", "attribute_map"))
    required = re.findall(r"Invalid value for `(\w+)`, must not be `None`", text)
    return {
        "type": "object",
        "properties": {names[field]: _typed(type_) for field, type_ in types.items()},
        "required": sorted({names[field] for field in required}),
        "additionalProperties": False,
    }


def _source(model: str) -> Path:
    """The module that a model's class stands in."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", model).lower()
    return Path(str(distribution("kserve").locate_file(f"kserve/models/{name}.py")))


def _table(text: str, name: str) -> dict[str, str]:
    """A class attribute that is a dict of constants."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            found: dict[str, str] = ast.literal_eval(node.value)
            return found
    raise AssertionError(f"KServe's models have no {name} any more")


def _typed(type_: str) -> dict[str, Any]:
    """A type as the generator writes it; what is Kubernetes' own is any object here."""
    if type_.startswith("list["):
        return {"type": "array", "items": _typed(type_[5:-1])}
    if type_.startswith("dict("):
        return {"type": "object", "additionalProperties": _typed(type_[5:-1].partition(", ")[2])}
    if type_ in PLAIN:
        return {"type": PLAIN[type_]}
    return schema(type_) if _source(type_).exists() else {"type": "object"}
