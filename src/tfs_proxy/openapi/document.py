"""A service -> its OpenAPI 3.1 document: where the paths and what they share come together."""

import json
from typing import Any

from tfs_proxy import __version__
from tfs_proxy.openapi.components import (
    shared_answers,
    shared_headers,
    shared_parameters,
    shared_schemas,
)
from tfs_proxy.openapi.definitions import hoisted
from tfs_proxy.openapi.invocations import invocations
from tfs_proxy.openapi.management import management_paths
from tfs_proxy.openapi.open_inference import (
    open_inference_paths,
    open_inference_schemas,
    repository_paths,
)
from tfs_proxy.openapi.platform import platform_paths
from tfs_proxy.openapi.service import AnyModel, Service
from tfs_proxy.openapi.serving_api import serving_paths

Document = dict[str, Any]

OPENAPI = "3.1.0"
DESCRIPTION = """\
What this server serves, made from the signatures of its models, its script and its settings.

Every error is `{"error": "..."}`. Bodies may come with `Content-Encoding: gzip`.
"""


def document_of(service: Service) -> Document:
    """The document of one archive."""
    paths = {"/invocations": {"post": invocations(service)}, **platform_paths(service)}
    schemas = shared_schemas()
    if service.rest_api and service.models:
        paths |= serving_paths(service.models)
    if service.open_inference != "off":
        paths |= open_inference_paths(service)
        schemas |= open_inference_schemas()
    return _document(service.default_model or "tfs-proxy", paths, schemas)


def document_of_many(*, rest_api: bool, open_inference: bool) -> Document:
    """The document of a multi-model endpoint: its models come and go, so none is described by its name."""
    service = Service((AnyModel(),), "model", open_inference="model")
    paths = {**platform_paths(service), **management_paths()}
    if rest_api:
        paths |= serving_paths(service.models)
    if open_inference:
        paths |= {**open_inference_paths(service), **repository_paths()}
    return _document("tfs-proxy", paths, {**shared_schemas(), **open_inference_schemas()})


def document_text(document: Document) -> bytes:
    """The document as JSON."""
    return json.dumps(document, indent=1).encode()


def _document(title: str, paths: dict[str, Any], schemas: dict[str, Any]) -> Document:
    return hoisted(
        {
            "openapi": OPENAPI,
            "info": {"title": title, "version": __version__, "description": DESCRIPTION},
            "paths": paths,
            "components": {
                "schemas": schemas,
                "responses": shared_answers(),
                "headers": shared_headers(),
                "parameters": shared_parameters(),
            },
        }
    )
