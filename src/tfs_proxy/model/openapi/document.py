"""OpenAPI 3.1 document of a service, from its paths and their common parts."""

import json
from collections.abc import Iterator
from typing import Any

from tfs_proxy import __version__
from tfs_proxy.model.openapi.components import answer, shared_answers, static_parts, static_paths
from tfs_proxy.model.openapi.invocations import invocations
from tfs_proxy.model.openapi.open_inference import open_inference_paths
from tfs_proxy.model.openapi.service import Service
from tfs_proxy.model.openapi.serving_api import serving_paths

Document = dict[str, Any]

OPENAPI = "3.1.0"
TITLE = "tfs-proxy"
DESCRIPTION = """\
The models served here, described by their signatures, the script and the settings.

Every error is `{"error": "..."}`. Bodies may come with `Content-Encoding: gzip`.
"""


def document_of(service: Service) -> Document:
    paths = {
        "/invocations": {"post": invocations(service)},
        **static_paths("limits"),
        **_platform(service),
    }
    schemas = {**static_parts()["schemas"]}
    if service.rest_api and service.models:
        paths |= serving_paths(service.models)
    if service.open_inference != "off":
        paths |= open_inference_paths(service)
        schemas |= static_parts()["open_inference_schemas"]
    return _document(service.default_model or TITLE, paths, schemas, service.max_payload_bytes)


def document_of_many(service: Service, *, target_model: bool) -> Document:
    """Document of a multi-model endpoint, which describes no model by name, since models come and go.

    ``service`` has one `AnyModel`; ``target_model`` says that requests may name an archive in a header.
    """
    paths = {**_platform(service), **static_paths("management")}
    if target_model:
        paths |= static_paths("target_model")
    if service.rest_api:
        paths |= serving_paths(service.models)
    if service.open_inference != "off":
        paths |= open_inference_paths(service)
    schemas = {**static_parts()["schemas"], **static_parts()["open_inference_schemas"]}
    return _document(TITLE, paths, schemas, service.max_payload_bytes)


def _platform(service: Service) -> dict[str, Any]:
    """Paths ``/ping``, ``/metrics``, ``/openapi.json`` and ``/``, which may be the console."""
    paths = static_paths("platform")
    if service.console:
        paths["/"]["get"]["responses"]["200"] = answer(**static_parts()["page"])
    return paths


def document_text(document: Document) -> bytes:
    return json.dumps(document, indent=1).encode()


def _document(title: str, paths: dict[str, Any], schemas: dict[str, Any], max_payload_bytes: int) -> Document:
    return hoisted(
        {
            "openapi": OPENAPI,
            "info": {"title": title, "version": __version__, "description": DESCRIPTION},
            "paths": paths,
            "components": {
                "schemas": schemas,
                "responses": shared_answers(max_payload_bytes),
                "headers": static_parts()["headers"],
                "parameters": static_parts()["parameters"],
            },
        }
    )


_OWN = "#/$defs/"


def hoisted(document: dict[str, Any]) -> dict[str, Any]:
    """Moves all definitions into the components' schemas; different ones of the same name get numbers."""
    schemas = document["components"]["schemas"]
    paths = _moved(document["paths"], schemas)
    return {**document, "paths": paths}


def _moved(node: Any, schemas: dict[str, Any]) -> Any:
    match node:
        case {"$defs": dict() as definitions}:
            names = {name: _free(name, schemas) for name in definitions}
            rest = {key: value for key, value in node.items() if key != "$defs"}
            for name, definition in definitions.items():
                schemas[names[name]] = {}  # later definitions must not get this name
                schemas[names[name]] = _moved(_renamed(definition, names), schemas)
            return _moved(_renamed(rest, names), schemas)
        case dict():
            return {key: _moved(value, schemas) for key, value in node.items()}
        case list():
            return [_moved(value, schemas) for value in node]
        case _:
            return node


def _renamed(node: Any, names: dict[str, str]) -> Any:
    """Makes references to definitions point to components."""
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
