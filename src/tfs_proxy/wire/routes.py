"""Table of all paths that are answered: for nginx, workers, control API, labels of metrics and docs."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from http import HTTPMethod, HTTPStatus
from typing import Final
from urllib.parse import unquote

from tfs_proxy.values.errors import TfsProxyError
from tfs_proxy.wire.error_body import not_allowed
from tfs_proxy.wire.error_status import status_of_error
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse

GET: Final = ("GET", "HEAD")
POST: Final = ("POST",)
OTHER_ROUTE = "other"
OTHER_METHOD = "_OTHER"
OTHER_STATUS = "other"
INPUT_NAMES = "x-inputs"
OUTPUT_NAMES = "x-outputs"
"""Extensions of an operation of the OpenAPI document: the signature for which CSV is read and written."""

WORKER = "worker"
SUPERVISOR = "supervisor"
MODEL_SERVER = "model server"
_BY_WORKERS = (WORKER, WORKER, "")
_BY_MODEL_SERVERS = (MODEL_SERVER, MODEL_SERVER, "")
_BY_RUN = (SUPERVISOR, SUPERVISOR, "")
_OF_MANY = ("", SUPERVISOR, "")
_BY_WORKERS_OF_ONE = (WORKER, SUPERVISOR, "")
_EVERYWHERE = (SUPERVISOR,) * 3
"""Processes that answer with one archive, with many models, and in a pipeline."""


class Caller(Enum):
    """Callers that a route is for, where a run asks for keys or for clients' certificates."""

    ANYONE = "anyone"
    """Whoever has neither: platforms that ask for health. Pages of other sites may, too."""

    OPEN = "open"
    """Whoever has a certificate, where one is asked for: a browser gets the page, which asks for the key."""

    KEY = "key"
    ADMIN = "admin"
    """An admin's key, and never a page of another site."""

    NGINX = "nginx"
    WORKER = "worker"
    """Processes and commands of the run alone: clients get 404."""


KEYLESS = (Caller.ANYONE, Caller.OPEN)
OF_RUN = (Caller.NGINX, Caller.WORKER)


@dataclass(frozen=True)
class Route:
    """A path with its methods, and the processes that answer it."""

    path: str
    """Pattern of the path: `{name}` is a segment, `[/optional]` may be missing, `(a,b)` is a choice."""

    methods: tuple[str, ...]
    """Methods that are answered; any other is a 405."""

    answered_by: Sequence[str]
    """Kind of process that answers with one archive, with many models, and in a pipeline; "" for none."""

    sentence: str = ""
    """Description for the reference page; "" for a path that is not for clients of HTTP."""

    caller: Caller = Caller.KEY
    """Those who may call it. Of paths that name a file only those of the page's own files are open."""

    is_probe: bool = False
    """True for requests of platforms and tools, which are counted apart."""

    names_model: str = ""
    """Place of the model's name for counts: in the "path", in the "line", or nowhere."""

    is_other: bool = False
    """True if it is counted among the unknown paths."""

    early: bool = False
    """True if it is answered on the workers' socket until they take over."""

    def regex(self, segment: str = "(?P<{}>[^/]+)") -> str:
        """Regular expression of the path; ``segment`` is that of a segment, with ``{}`` for its name.

        TF Serving takes letters of any case, and a colon ends a segment.
        """
        text = self.path.translate(_REGEX_OF)
        text = re.sub(r"\{(\w+)\}", lambda name: segment.replace("{}", name[1]), text)
        return f"(?i:{text.replace('[^/]', '[^/:]')})" if MODEL_SERVER in self.answered_by else text

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.regex())

    def location(self, model: str = "[^/]+") -> str:
        """Location of nginx, whose segments match ``model``."""
        return f"= {self.path}" if self.is_exact else f'~ "^{self.regex(model)}\\z"'

    @property
    def templates(self) -> Sequence[str]:
        """Paths of falcon: without and with the optional part."""
        return tuple(re.sub(r"\[(.*)\]", kept, self.path) for kept in ("", r"\1"))

    @cached_property
    def label(self) -> str:
        return OTHER_ROUTE if self.is_other or self.caller in OF_RUN else re.sub(r"\[.*\]", "", self.path)

    @property
    def is_exact(self) -> bool:
        return not re.search(r"[{[(]", self.path)


_REGEX_OF: Final = str.maketrans({".": r"\.", "[": "(?:", "]": ")?", "(": "(?:", ",": "|"})

# fmt: off
PING = Route("/ping", GET, _EVERYWHERE,
    "200 and no body if everything serves, else 503 with the reason",
    Caller.ANYONE, is_probe=True)
LIVENESS = Route("/live", GET, _EVERYWHERE,
    "200 and no body from the start on, 503 with the reason if processes don't serve; for a liveness probe",
    Caller.ANYONE, is_probe=True, early=True)
METRICS = Route("/metrics", GET, _EVERYWHERE,
    "the metrics of the container, for Prometheus", is_probe=True, early=True)
INVOCATIONS = Route("/invocations", POST, (WORKER, WORKER, SUPERVISOR),
    "the answer of the model or of the script", names_model="line")
EXECUTION_PARAMETERS = Route("/execution-parameters", GET, (WORKER, "", SUPERVISOR),
    "the sizes of requests that suit a batch transform job")
OPENAPI = Route("/openapi.json", GET, _BY_WORKERS_OF_ONE, "an OpenAPI 3.1 document of all that is served")
ROOT = Route("/", GET, _BY_WORKERS_OF_ONE, '`{"status": "alive"}`; the console for a browser',
    Caller.OPEN)
CONSOLE = Route("/console/{name}", GET, _BY_WORKERS_OF_ONE, "the files of the console",
    Caller.OPEN, is_other=True)

MODELS = Route("/models", GET, _OF_MANY, "the models that are loaded")
LOAD = Route("/models", POST, _OF_MANY, "loads a model", Caller.ADMIN)
MODEL = Route("/models/{name}", GET, _OF_MANY, "one model")
UNLOAD = Route("/models/{name}", ("DELETE",), _OF_MANY, "unloads a model", Caller.ADMIN)
INVOKE = Route("/models/{name}/invoke", POST, ("", WORKER, ""),
    "the answer of a model, as of `/invocations`", names_model="line")

SERVED_MODELS = Route("/v1/models", GET, _BY_RUN, '`{"models": [...]}`, as KServe has it')
_SERVED = SERVED_MODELS.path + "/{model}[/(versions,labels)/{version}]"
# Five names that nothing reads: the model server answers them, and they stand here for the table alone.
SERVED_STATUS = Route(_SERVED, GET, _BY_MODEL_SERVERS,
    "the state of each version; a worker adds `ready` if no version is named",
    names_model="path")
SERVED_METADATA = Route(f"{_SERVED}/metadata", GET, _BY_MODEL_SERVERS,
    "the signatures", names_model="path")
SERVED_PREDICT, SERVED_CLASSIFY, SERVED_REGRESS = (
    Route(f"{_SERVED}:{method}", POST, _BY_MODEL_SERVERS, f"the model server's answer to {method}",
        names_model="path")
    for method in ("predict", "classify", "regress")
)

LIVE = Route("/v2/health/live", GET, _BY_RUN,
    '`{"live": true}`, from the start on', Caller.ANYONE, is_probe=True, early=True)
READY = Route("/v2/health/ready", GET, _BY_RUN,
    '200 `{"live": true, "ready": true}` if `/ping` is 200 and gRPC is answered (where a gRPC port is '
    'published), else 503 `{"live": true, "ready": false}`', Caller.ANYONE, is_probe=True, early=True)
SERVER = Route("/v2[/]", GET, _BY_RUN,
    '`{"name": "tfs_proxy", "version", "extensions"}`')
_OPEN = "/v2/models/{model}[/versions/{version}]"
METADATA = Route(_OPEN, GET, _BY_WORKERS, "the versions of a model, and its tensors")
MODEL_READY = Route(f"{_OPEN}/ready", GET, _BY_WORKERS, "200 if the model is loaded, else 503")
INFER = Route(f"{_OPEN}/infer", POST, _BY_WORKERS, "an inference", names_model="path")

DEPLOYMENT = Route("/deployment", GET, _BY_RUN, caller=Caller.WORKER)
SETTLED = Route("/settled", GET, _BY_RUN, caller=Caller.WORKER)
HEARTBEAT = Route("/workers", POST, _BY_RUN, caller=Caller.WORKER)
READY_VERSIONS = Route("/ready-versions", GET, _BY_RUN, caller=Caller.WORKER)
LOADED, SERVED, REACHABLE = (
    Route(f"/{name}/{{name}}/ready", GET, _OF_MANY, caller=Caller.NGINX)
    for name in ("models", "served", "reachable")
)
"""Paths that nginx asks when a model has no gate: by its name, that of its model server, or either."""

PREDICTION_SERVICE = "/tensorflow.serving.PredictionService/"
GET_MODEL_STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
OPEN_INFERENCE = "/inference.GRPCInferenceService/"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/"
GRPC_SERVICES = (
    "tensorflow.serving.PredictionService", "tensorflow.serving.ModelService",
    "inference.GRPCInferenceService", "grpc.health.v1.Health")
HEALTH_CHECK, HEALTH_WATCH = (
    Route(f"/grpc.health.v1.Health/{name}", POST, _BY_RUN, caller=Caller.ANYONE, is_probe=True)
    for name in ("Check", "Watch"))
ONE_ARCHIVE, MANY_MODELS, PIPELINE = range(3)
"""Columns of ``answered_by``."""

_CALLS = (
    *(Route(PREDICTION_SERVICE + name, POST, _BY_MODEL_SERVERS)
        for name in ("Predict", "Classify", "Regress", "MultiInference", "GetModelMetadata")),
    Route(GET_MODEL_STATUS, POST, _BY_MODEL_SERVERS),
    *(Route(OPEN_INFERENCE + name, POST, _BY_WORKERS)
        for name in ("ServerLive", "ServerReady", "ServerMetadata",
            "ModelReady", "ModelMetadata", "ModelInfer")),
    Route(REFLECTION + "ServerReflectionInfo", POST, _BY_WORKERS, is_probe=True),
)
"""Calls of gRPC."""
# fmt: on

TABLE: Final = (*(each for each in list(globals().values()) if isinstance(each, Route)), *_CALLS)
PROBES: Final = frozenset(route.path for route in TABLE if route.is_probe)

_EXACT: Final = {route.path: route for route in TABLE if route.is_exact}
_OTHERS: Final = [route for route in TABLE if not route.is_exact and route.label != OTHER_ROUTE]
_ANY_OTHER: Final = re.compile("|".join(f"({route.regex('[^/]+')})" for route in _OTHERS))
_NOWHERE: Final = Route("", (), (), is_other=True)
_METHODS: Final = {method.value: method.value for method in HTTPMethod}
_STATUSES: Final = range(100, 600)


def path_of(target: str) -> str:
    return target.partition("?")[0]


def _route_at(path: str) -> Route:
    match = None if path in _EXACT else _ANY_OTHER.fullmatch(path)
    return _OTHERS[match.lastindex - 1] if match and match.lastindex else _EXACT.get(path, _NOWHERE)


def route_of(path: str) -> str:
    """Label of a path; models, versions and labels are not told apart, and unknown paths share one."""
    return _route_at(path).label


def model_of(path: str, in_line: tuple[str, str]) -> tuple[str, str] | None:
    """Model and version, or label, that a request's path or line names; None if it is for no model.

    Of the Open Inference Protocol these are only inferences.
    """
    route = _route_at(path)
    if route.names_model == "line":
        return in_line
    named = route.pattern.fullmatch(path) if route.names_model == "path" else None
    return (named["model"], named["version"] or "") if named else None


def method_of(method: str) -> str:
    """Return the method if HTTP knows it."""
    return _METHODS.get(method, OTHER_METHOD)


def status_of(status: int) -> str:
    """Return the status if it is one."""
    return str(status) if status in _STATUSES else OTHER_STATUS


Handler = Callable[..., Awaitable[HttpResponse]]
"""Function that answers a request; gets the names in its path as keywords. May raise TfsProxyError."""

Handlers = Mapping[Route, Handler]


async def answer_by(handlers: Handlers, request: HttpRequest) -> HttpResponse | None:
    """Answer a request by the first match, with 405 for a method that its path does not have; else None."""
    found = [(route, match) for route in handlers if (match := route.pattern.fullmatch(request.path))]
    for route, match in found:
        if request.method in route.methods:
            names = {name: unquote(text) for name, text in match.groupdict(default="").items()}
            try:
                return await handlers[route](request, **names)
            except TfsProxyError as error:
                return HttpResponse.error(status_of_error(error), str(error))
    methods = [method for route, _ in found for method in route.methods]
    return refused_method(request.method, methods) if found else None


def refused_method(method: str, methods: Sequence[str]) -> HttpResponse:
    allowed = ", ".join(methods)
    return HttpResponse.error(
        HTTPStatus.METHOD_NOT_ALLOWED, not_allowed(method, allowed), headers={"Allow": allowed}
    )
