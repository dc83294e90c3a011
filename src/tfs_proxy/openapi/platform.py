"""What platforms ask a container for: health, metrics, limits, and this document itself."""

from typing import Any

from tfs_proxy.openapi.components import EVERYWHERE, answer, errors, of_request
from tfs_proxy.openapi.content import json_content
from tfs_proxy.openapi.service import Service

Paths = dict[str, Any]

_COUNT = {"type": "integer", "minimum": 1}
_METRICS_TYPES = ("text/plain", "application/openmetrics-text")


def platform_paths(service: Service) -> Paths:
    """``/ping``, ``/execution-parameters``, ``/metrics``, ``/openapi.json`` and ``/``."""
    paths: Paths = {
        "/ping": _get("ping", "Whether requests are answered", answer("All is ready; the body is empty.")),
        "/execution-parameters": _get(
            "executionParameters",
            "How a batch transform job should send requests",
            answer("Limits of one job.", json_content(_limits())),
        ),
        "/openapi.json": _get(
            "describe", "This document", answer("OpenAPI 3.1.", json_content({"type": "object"}))
        ),
        "/": _get("root", "Whether the server is alive; the console for a browser", _alive()),
    }
    if service.has_metrics:
        content = {name: {"schema": {"type": "string"}} for name in _METRICS_TYPES}
        answered = answer("Metrics in Prometheus's format, or in OpenMetrics.", content)
        paths["/metrics"] = _get("metrics", "Metrics of the whole container", answered)
    return paths


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
    schema = {
        "type": "object",
        "properties": {"status": {"const": "alive"}},
        "required": ["status"],
    }
    page = {"text/html": {"schema": {"type": "string"}}}
    return answer("It is alive; a page if HTML is preferred.", {**json_content(schema), **page})
