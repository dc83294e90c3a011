"""The API of multi-model endpoints: ``/models``, and the same protocols as one model has, by name."""

from typing import Any

from tfs_proxy.names import LOADED_MODEL
from tfs_proxy.openapi.components import (
    ANYTHING,
    CONVERTED,
    EVERYWHERE,
    WITH_BODY,
    answer,
    answered_by_script,
    errors,
    of_request,
    path_parameter,
)
from tfs_proxy.openapi.content import json_content
from tfs_proxy.openapi.tensors import Schema
from tfs_proxy.wire.header_names import TARGET_MODEL

Paths = dict[str, Any]

TAGS = ["Models"]
_MODEL: Schema = {
    "type": "object",
    "properties": {"modelName": {"type": "string"}, "modelUrl": {"type": "string"}},
    "required": ["modelName", "modelUrl"],
}
_MESSAGE: Schema = {
    "type": "object",
    "properties": {"message": {"type": "string"}},
    "required": ["message"],
}
_LOAD: Schema = {
    "type": "object",
    "properties": {
        "model_name": {"type": "string", "pattern": f"^{LOADED_MODEL}$"},
        "url": {"type": "string", "description": "A folder, an archive, or an s3:// address."},
    },
    "required": ["model_name", "url"],
}


def management_paths() -> Paths:
    """Load, list, show, unload and invoke; what a body looks like is the business of each model."""
    named = [path_parameter("name", LOADED_MODEL), *of_request()]
    return {
        "/models": {
            "get": _operation("list", "The loaded models", _token(), json_content(_listed())),
            "post": {
                **_operation("load", "Load a model", of_request(), json_content(_MESSAGE), (409, 507)),
                "requestBody": {"required": True, "content": json_content(_LOAD)},
            },
        },
        "/models/{name}": {
            "get": _operation("get", "One loaded model", named, json_content(_MODEL)),
            "delete": _operation("unload", "Unload a model", named, json_content(_MESSAGE)),
        },
        "/models/{name}/invoke": {"post": _invoke("invoke", [path_parameter("name", LOADED_MODEL)])},
    }


def invocations_of_many() -> Paths:
    """``/invocations`` with the header that names an archive, which is loaded if it is not yet."""
    target = {
        "name": TARGET_MODEL,
        "in": "header",
        "required": True,
        "description": "The path of an archive, relative to the folder of all: team/a.tar.gz.",
        "schema": {"type": "string", "pattern": r"^[\x21-\x7e]+$"},
    }
    return {"/invocations": {"post": _invoke("invokeTarget", [target])}}


def _invoke(name: str, parameters: list[Any]) -> dict[str, Any]:
    described = _operation(
        name,
        "Ask one model, or its script",
        [*parameters, *of_request("CustomAttributes")],
        {ANYTHING: {}},
        (*CONVERTED, 507),
    )
    return {
        **described,
        "requestBody": {"required": True, "content": {ANYTHING: {}}},
        "responses": {**described["responses"], "default": answered_by_script()},
    }


def _operation(
    name: str, summary: str, parameters: list[Any], content: dict[str, Any], more: tuple[int, ...] = ()
) -> dict[str, Any]:
    return {
        "operationId": f"{name}Model",
        "summary": summary,
        "tags": TAGS,
        "parameters": parameters,
        "responses": {
            "200": answer("Done.", content),
            **errors({*EVERYWHERE, *(WITH_BODY if more else ()), *more}),
        },
    }


def _listed() -> Schema:
    properties = {"models": {"type": "array", "items": _MODEL}, "nextPageToken": {"type": "string"}}
    return {"type": "object", "properties": properties, "required": ["models"]}


def _token() -> list[Any]:
    token = {
        "name": "next_page_token",
        "in": "query",
        "required": False,
        "description": "What the page before gave as nextPageToken.",
        "schema": {"type": "string"},
    }
    return [token, *of_request()]
