"""A request's path and method as label values: what is known here by its name, all else as one value."""

import re
from collections.abc import Mapping

OTHER_ROUTE, OTHER_METHOD, OTHER_STATUS = "other", "_OTHER", "other"
PROBES = frozenset({"/ping", "/metrics"})
"""Requests of platforms, counted apart."""

INVOCATIONS = "/invocations"
_PREDICTION = "/tensorflow.serving.PredictionService/"
_CALLS = frozenset(
    {
        *(f"{_PREDICTION}{name}" for name in ("Predict", "Classify", "Regress", "MultiInference")),
        f"{_PREDICTION}GetModelMetadata",
        "/tensorflow.serving.ModelService/GetModelStatus",
    }
)
_EXACT = frozenset({INVOCATIONS, "/execution-parameters", *_CALLS})
_SERVING = re.compile(
    r"/v1/models/(?P<model>[^/:]+)(?:/(?:versions|labels)/(?P<version>[^/:]+))?"
    r"(?P<method>:predict|:classify|:regress|/metadata)?",
    re.IGNORECASE,
)
_MANAGED = re.compile(r"/models(?P<name>/[^/]+)?")
_INVOKED = re.compile(r"/models/(?P<name>[^/]+)/invoke")
_METHODS: Mapping[str, str] = {
    name: name for name in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE")
}
_LOWEST_STATUS, _HIGHEST_STATUS = 100, 599


def path_of(target: str) -> str:
    """The path of a request's target, without its query."""
    return target.partition("?")[0]


def route_of(path: str) -> str:
    """The route that a path belongs to; models, versions and labels are not told apart."""
    if path in _EXACT:
        return path
    if _INVOKED.fullmatch(path):
        return "/models/{name}/invoke"
    if managed := _MANAGED.fullmatch(path):
        return "/models/{name}" if managed["name"] else "/models"
    serving = _SERVING.fullmatch(path)
    return f"/v1/models/{{model}}{(serving['method'] or '').lower()}" if serving else OTHER_ROUTE


def is_named_in_line(path: str) -> bool:
    """Whether the line of a request to this path names the model that it is for."""
    return path == INVOCATIONS or path in _CALLS or _INVOKED.fullmatch(path) is not None


def model_of(path: str) -> tuple[str, str] | None:
    """The model and version, or label, that a path of TF Serving's API names; None for other paths."""
    serving = _SERVING.fullmatch(path)
    return (serving["model"], serving["version"] or "") if serving else None


def method_of(method: str) -> str:
    """The method if HTTP knows it."""
    return _METHODS.get(method, OTHER_METHOD)


def status_of(status: int) -> str:
    """The status if it is one."""
    return str(status) if _LOWEST_STATUS <= status <= _HIGHEST_STATUS else OTHER_STATUS
