"""What platforms ask a container for: health, metrics, limits, and this document itself."""

from typing import Any

from tfs_proxy.openapi.components import EVERYWHERE, answer, errors, of_request
from tfs_proxy.openapi.content import json_content

Paths = dict[str, Any]

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
