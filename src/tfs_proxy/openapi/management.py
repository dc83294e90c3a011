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
    json_content,
    of_request,
    path_parameter,
)
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


_COUNT = {"type": "integer", "minimum": 1}
_STATUS = {"type": "object", "properties": {"status": {"const": "alive"}}, "required": ["status"]}
_METRICS_TYPES = ("text/plain", "application/openmetrics-text")


def platform_paths(*, console: bool) -> Paths:
    """``/ping``, ``/metrics``, ``/openapi.json`` and ``/``, which is a page if there is the ``console``."""
    metrics = {name: {"schema": {"type": "string"}} for name in _METRICS_TYPES}
    return {
        "/ping": _get("ping", "Whether requests are answered", answer("All is ready; the body is empty.")),
        "/metrics": _get(
            "metrics",
            "Metrics of the whole container",
            answer("Metrics in Prometheus's format, or in OpenMetrics.", metrics),
        ),
        "/openapi.json": _get(
            "describe", "This document", answer("OpenAPI 3.1.", json_content({"type": "object"}))
        ),
        "/": _get("root", "Whether the server is alive", _page_or_alive() if console else _alive()),
    }


def limits_path() -> Paths:
    """``/execution-parameters``, for batch transform jobs of one archive."""
    answered = answer("Limits of one job.", json_content(_limits()))
    summary = "How a batch transform job should send requests"
    return {"/execution-parameters": _get("executionParameters", summary, answered)}


def _get(operation: str, summary: str, answered: dict[str, Any]) -> dict[str, Any]:
    return {
        "get": {
            "operationId": operation,
            "summary": summary,
            "tags": ["Platform"],
            "parameters": of_request(),
            "responses": {"200": answered, **errors((*EVERYWHERE, 406))},
        }
    }


def _limits() -> dict[str, Any]:
    names = ("MaxConcurrentTransforms", "MaxPayloadInMB")
    return {"type": "object", "properties": dict.fromkeys(names, _COUNT), "required": list(names)}


def _alive() -> dict[str, Any]:
    return answer("It is alive.", json_content(_STATUS))


def _page_or_alive() -> dict[str, Any]:
    page = {"text/html": {"schema": {"type": "string"}}}
    return answer(
        "It is alive; a page to try the models if HTML is preferred.", {**json_content(_STATUS), **page}
    )
