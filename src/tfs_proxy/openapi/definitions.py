"""The ``$defs`` of schemas that a script gives -> components, where their references lead in a document."""

from collections.abc import Iterator
from typing import Any

_OWN = "#/$defs/"


def hoisted(document: dict[str, Any]) -> dict[str, Any]:
    """The document with all definitions among its schemas; those of the same name get numbers."""
    schemas = document["components"]["schemas"]
    paths = _moved(document["paths"], schemas)
    return {**document, "paths": paths}


def _moved(node: Any, schemas: dict[str, Any]) -> Any:
    match node:
        case {"$defs": dict() as definitions}:
            names = {name: _free(name, schemas) for name in definitions}
            rest = {key: value for key, value in node.items() if key != "$defs"}
            for name, definition in definitions.items():
                schemas[names[name]] = {}  # taken, for those that come after it
                schemas[names[name]] = _moved(_renamed(definition, names), schemas)
            return _moved(_renamed(rest, names), schemas)
        case dict():
            return {key: _moved(value, schemas) for key, value in node.items()}
        case list():
            return [_moved(value, schemas) for value in node]
        case _:
            return node


def _renamed(node: Any, names: dict[str, str]) -> Any:
    """References to own definitions lead to components."""
    match node:
        case dict():
            return {
                key: _component(value, names) if key == "$ref" else _renamed(value, names)
                for key, value in node.items()
            }
        case list():
            return [_renamed(value, names) for value in node]
        case _:
            return node


def _component(reference: Any, names: dict[str, str]) -> Any:
    name = reference.removeprefix(_OWN) if isinstance(reference, str) else ""
    return f"#/components/schemas/{names[name]}" if name in names else reference


def _free(name: str, schemas: dict[str, Any]) -> str:
    return next(candidate for candidate in _candidates(name) if candidate not in schemas)


def _candidates(name: str) -> Iterator[str]:
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name) or "schema"
    yield plain
    number = 2
    while True:
        yield f"{plain}.{number}"
        number += 1
