"""Label values of a request's path and method: its name if it is known here, one value for all others."""

import re
from collections.abc import Mapping

OTHER_ROUTE, OTHER_METHOD, OTHER_STATUS = "other", "_OTHER", "other"
LIVE, READY = "/v2/health/live", "/v2/health/ready"
PROBES = frozenset(
    {
        *("/ping", "/metrics", LIVE, READY),
        *("/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"),
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    }
)
"""Routes of requests by platforms and tools, counted apart."""

INVOCATIONS = "/invocations"
SERVED_MODELS = "/v1/models"
SERVER, REPOSITORY_INDEX, ALL_STATISTICS = "/v2", "/v2/repository/index", "/v2/models/stats"
OPENAPI, EXECUTION_PARAMETERS = "/openapi.json", "/execution-parameters"
SHARED_MEMORY = r"/v2/(?:system|cuda)sharedmemory(?:/region/[^/]+)?/(?:status|register|unregister)"
"""Paths of Triton's extensions for memory that clients share with it, which is refused here."""

_PREDICTION = "/tensorflow.serving.PredictionService/"
_OPEN_INFERENCE = "/inference.GRPCInferenceService/"
_INFERENCE_CALLS = frozenset(
    {
        *(f"{_PREDICTION}{name}" for name in ("Predict", "Classify", "Regress", "MultiInference")),
        *(f"{_OPEN_INFERENCE}{name}" for name in ("ModelInfer", "ModelStreamInfer")),
    }
)
_CALLS = frozenset(
    {
        *_INFERENCE_CALLS,
        f"{_PREDICTION}GetModelMetadata",
        "/tensorflow.serving.ModelService/GetModelStatus",
    }
)
_OTHER_CALLS = frozenset(
    f"{_OPEN_INFERENCE}{name}"
    for name in (
        *("ServerLive", "ServerReady", "ServerMetadata", "ModelReady", "ModelMetadata", "ModelConfig"),
        *("ModelStatistics", "RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"),
    )
)
"""Calls whose line names no model: they ask for no inference."""

_EXACT = frozenset(
    {
        *("/", INVOCATIONS, EXECUTION_PARAMETERS, OPENAPI),
        *(SERVED_MODELS, SERVER, REPOSITORY_INDEX, ALL_STATISTICS),
        *(*_CALLS, *_OTHER_CALLS),
    }
)
_OPEN = re.compile(
    r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?(?P<method>/(?:infer|ready|config|stats))?"
)
_REPOSITORY = re.compile(r"/v2/repository/models/[^/]+(?P<method>/(?:load|unload))")
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
    return target.partition("?")[0]


def route_of(path: str) -> str:
    """Route that a path belongs to; models, versions and labels are not told apart."""
    path = SERVER if path == f"{SERVER}/" else path
    if path in _EXACT:
        return path
    if _INVOKED.fullmatch(path):
        return "/models/{name}/invoke"
    if managed := _MANAGED.fullmatch(path):
        return "/models/{name}" if managed["name"] else "/models"
    if serving := _SERVING.fullmatch(path):
        return f"/v1/models/{{model}}{(serving['method'] or '').lower()}"
    if asked := _OPEN.fullmatch(path):
        return f"/v2/models/{{model}}{asked['method'] or ''}"
    changed = _REPOSITORY.fullmatch(path)
    return f"/v2/repository/models/{{model}}{changed['method']}" if changed else OTHER_ROUTE


def is_inference(path: str) -> bool:
    """True if a request to this path asks a model for an inference, and not about it."""
    if path == INVOCATIONS or path in _INFERENCE_CALLS or _INVOKED.fullmatch(path):
        return True
    if serving := _SERVING.fullmatch(path):
        return (serving["method"] or "").startswith(":")
    asked = _OPEN.fullmatch(path)
    return asked is not None and asked["method"] == "/infer"


def is_named_in_line(path: str) -> bool:
    """True if the line of a request to this path names the model that it is for."""
    return path == INVOCATIONS or path in _CALLS or _INVOKED.fullmatch(path) is not None


def model_of(path: str) -> tuple[str, str] | None:
    """Model and version, or label, in the path of a request for a model; None for other paths.

    Of the Open Inference Protocol these are only inferences.
    """
    named = _SERVING.fullmatch(path) or (_OPEN.fullmatch(path) if is_inference(path) else None)
    return (named["model"], named["version"] or "") if named else None


def method_of(method: str) -> str:
    """Return the method if HTTP knows it."""
    return _METHODS.get(method, OTHER_METHOD)


def status_of(status: int) -> str:
    """Return the status if it is one."""
    return str(status) if _LOWEST_STATUS <= status <= _HIGHEST_STATUS else OTHER_STATUS
