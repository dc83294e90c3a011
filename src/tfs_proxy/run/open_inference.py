"""The models of a run as the Open Inference Protocol lists them; `ServedArchive` has those of one archive."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from http import HTTPStatus
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec import Struct, field

from tfs_proxy import __version__
from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import Distribution, MeasuredMetric
from tfs_proxy.observe.request_counts import Inferences
from tfs_proxy.observe.request_record import (
    CONVERT,
    INPUT_HANDLER,
    MODEL_SERVER,
    OUTPUT_HANDLER,
    READ,
    STAGES,
    WAIT,
    WRITE,
)
from tfs_proxy.run.control_api import ControlledStack
from tfs_proxy.run.host.sockets import accepts
from tfs_proxy.run.readiness import AVAILABLE, ENDED, Readiness, ServableState, best_of
from tfs_proxy.values.errors import BadInput, UnknownModel
from tfs_proxy.values.names import printable
from tfs_proxy.wire import routes
from tfs_proxy.wire.error_body import NO_SHARED_MEMORY
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse

ONLY_VERSION = "1"
"""The version of a script model, which has none of its own."""

_NO_LOADS = (
    "models can't be loaded or unloaded here: that takes a run with several models, by "
    "SAGEMAKER_MULTI_MODEL=true or --multi-model"
)


class IndexState(Enum):
    """Triton's states of a version."""

    READY = "READY"
    LOADING = "LOADING"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


class IndexedVersion(Struct, frozen=True):
    """A version of a model, "" if none is known; ``reason`` says why it is not ready."""

    model: str
    version: str
    state: IndexState
    reason: str = ""


class Repository(Protocol):
    can_load: bool
    """True if models can be loaded and unloaded at run time."""

    async def index(self) -> Sequence[IndexedVersion]:
        """All versions: models by name, their versions ascending."""

    def served(self) -> Collection[str] | None:
        """The models of TF Serving's REST API; None if it is not published."""

    async def load(self, name: str, url: str | None, /) -> None:
        """Returns once the model is ready. Raises TfsProxyError if it can't be loaded."""

    async def unload(self, name: str, /) -> None:
        """Returns once the model has gone. Raises TfsProxyError if it can't be unloaded."""


class ServedArchive:
    """The models of the one archive of a run, in the stack that ``current`` gives."""

    can_load = False

    def __init__(self, current: Callable[[], ControlledStack]) -> None:
        self._current = current

    async def index(self) -> Sequence[IndexedVersion]:
        """All versions, as the model servers have last reported them."""
        deployment = self._current().deployment
        if deployment is None:
            return ()
        if deployment.script_model is not None:
            return (self._of_script(deployment.default_model),)
        return tuple(
            entry
            for model, versions in sorted(deployment.models.items())
            for entry in self._of_model(model, versions)
        )

    def served(self) -> Collection[str] | None:
        """The models, if the REST API is published."""
        deployment = self._current().deployment
        return deployment.models.keys() if deployment is not None and deployment.publishes_rest else None

    async def load(self, _name: str, _url: str | None) -> None:
        """Raises BadInput: the archive is that of the start."""
        raise BadInput(_NO_LOADS)

    async def unload(self, _name: str) -> None:
        """Raises BadInput: the archive stays."""
        raise BadInput(_NO_LOADS)

    def _of_script(self, model: str) -> IndexedVersion:
        reason = self._current().readiness.reason()
        state = IndexState.READY if reason is None else IndexState.UNAVAILABLE
        return IndexedVersion(model, ONLY_VERSION, state, reason or "")

    def _of_model(self, model: str, versions: Sequence[int]) -> list[IndexedVersion]:
        """Each version in its best state on any model server; one without a number if none is known."""
        states: dict[int, list[ServableState]] = {version: [] for version in versions}
        readiness = self._current().readiness
        for (instance, of_model), reported in readiness.reported.items():
            if of_model == model and instance not in readiness.unreachable:
                for version, state in reported.items():
                    states.setdefault(version, []).append(state)
        if not states:
            return [IndexedVersion(model, "", IndexState.UNAVAILABLE, best_of(()).state)]
        return [
            _indexed(model, version, best_of(reported) if reported else ServableState())
            for version, reported in sorted(states.items())
        ]


def _indexed(model: str, version: int, servable: ServableState) -> IndexedVersion:
    state = _STATES.get(servable.state, IndexState.UNAVAILABLE)
    reason = "" if state is IndexState.READY else servable.error or servable.state
    return IndexedVersion(model, str(version), state, reason)


_STATES = {
    AVAILABLE: IndexState.READY,
    "START": IndexState.LOADING,
    "LOADING": IndexState.LOADING,
    "UNLOADING": IndexState.UNLOADING,
    ENDED: IndexState.UNAVAILABLE,
}


STAGES_OF: Mapping[str, Sequence[int]] = {
    "queue": (WAIT,),
    "compute_input": (READ, INPUT_HANDLER, CONVERT),
    "compute_infer": (MODEL_SERVER,),
    "compute_output": (OUTPUT_HANDLER, WRITE),
}
"""The stages here that correspond to Triton's."""

NEVER_KNOWN = ("cache_hit", "cache_miss")
"""Triton's clients look for these, too; nothing is cached here."""

_NS, _MS = 1e9, 1e3


class InferenceTimes(Struct, frozen=True):
    """Counts and seconds of inferences, and seconds of their stages.

    ``inferences`` are by model, version and success, as `ModelCounts` has them; ``stages`` by
    stage and model.
    """

    inferences: Mapping[tuple[str, str, bool], Inferences] = field(default_factory=dict)
    stages: Mapping[tuple[str, str], Distribution] = field(default_factory=dict)


def stage_times(measured: Iterable[MeasuredMetric]) -> Mapping[tuple[str, str], Distribution]:
    """The stages among what was measured, by stage and model."""
    of_stages = (metric for metric in measured if metric.description is catalogue.STAGE_DURATION)
    return {
        (stage, model): of
        for metric in of_stages
        for (stage, model), of in (metric.distributions or {}).items()
    }


def model_statistics(model: str, versions: Sequence[str], times: InferenceTimes) -> list[dict[str, object]]:
    """The entries of a model, one for each of ``versions``, which ascend; there is one at least.

    Requests that name no number, and the stages, which are not told apart by version, count for the last.
    """
    former, last = versions[:-1], versions[-1]
    sums = {(version, ok): Inferences() for version in versions for ok in (True, False)}
    for (of_model, label, ok), inferences in times.inferences.items():
        if of_model == model:
            _add(sums[label if label in former else last, ok], inferences)
    stages = {stage: of for (stage, of_model), of in times.stages.items() if of_model == model}
    _lift(sums, last, sum(of.total for of in stages.values()))
    return [
        _entry(model, version, (sums[version, True], sums[version, False]), stages if version == last else {})
        for version in versions
    ]


def _add(total: Inferences, more: Inferences) -> None:
    total.count += more.count
    total.seconds += more.seconds
    total.last_at = max(total.last_at, more.last_at)


def _lift(sums: Mapping[tuple[str, bool], Inferences], last: str, stage_seconds: float) -> None:
    """Makes no request shorter than its stages: nginx times requests by a clock of milliseconds."""
    missing_seconds = stage_seconds - sum(of.seconds for of in sums.values())
    if missing_seconds > 0 and sums[last, True].count:
        sums[last, True].seconds += missing_seconds


def _entry(
    model: str, version: str, ok_and_failed: tuple[Inferences, Inferences], stages: Mapping[str, Distribution]
) -> dict[str, object]:
    ok, failed = ok_and_failed
    return {
        "name": model,
        "version": version,
        "last_inference": round(max(ok.last_at, failed.last_at) * _MS),
        "inference_count": ok.count,
        "execution_count": ok.count,
        "inference_stats": {
            "success": _duration(ok.count, ok.seconds),
            "fail": _duration(failed.count, failed.seconds),
            # As in Triton, each has counted as many: perf_analyzer takes the version whose queue has.
            **{
                name: _duration(ok.count, _stage_seconds(numbers, stages))
                for name, numbers in STAGES_OF.items()
            },
            **{name: _duration(0, 0.0) for name in NEVER_KNOWN},
        },
        "batch_stats": [],
    }


def _stage_seconds(numbers: Sequence[int], stages: Mapping[str, Distribution]) -> float:
    return sum(stages[STAGES[number]].total for number in numbers if STAGES[number] in stages)


def _duration(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": round(seconds * _NS)}


SERVER_NAME: Final = "tfs_proxy"
EXTENSIONS = ("binary_tensor_data", "model_configuration", "statistics")
REPOSITORY_EXTENSION: Final = "model_repository"


class OpenInferenceApi:
    """Answers from the run's ``readiness`` now and its ``repository``; ``times`` measures inferences now.

    ``labels`` are other names of versions; on ``grpc_router`` the gRPC router listens, if there is one.
    """

    def __init__(
        self,
        readiness: Callable[[], Readiness],
        repository: Repository,
        times: Callable[[], InferenceTimes],
        labels: Mapping[str, int],
        grpc_router: Path,
    ) -> None:
        self._readiness = readiness
        self._repository = repository
        self._times = times
        self._labels = labels
        self._grpc_router = grpc_router
        self.routes: routes.Handlers = {
            routes.SERVER: self._server,
            routes.LIVE: self._live,
            routes.READY: self._ready,
            routes.INDEX: self._index,
            routes.REPOSITORY_LOAD: self._load,
            routes.REPOSITORY_UNLOAD: self._unload,
            routes.ALL_STATISTICS: self._statistics,
            routes.STATISTICS: self._statistics,
            routes.SHARED_MEMORY: self._shared_memory,
        }

    async def _live(self, _: HttpRequest) -> HttpResponse:
        return _json({"live": True})

    async def _ready(self, _: HttpRequest) -> HttpResponse:
        ready = self._readiness().reason() is None and self._grpc_is_answered()
        return _json(
            {"live": True, "ready": ready}, HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
        )

    def _grpc_is_answered(self) -> bool:
        """Asks the gRPC router itself; ``/ping`` does not, since its 503 would replace the container."""
        return not self._grpc_router.exists() or accepts(self._grpc_router)

    async def _server(self, _: HttpRequest) -> HttpResponse:
        """Lists only available extensions: without loads there is no repository to change."""
        loads = (REPOSITORY_EXTENSION,) if self._repository.can_load else ()
        return _json({"name": SERVER_NAME, "version": __version__, "extensions": [*EXTENSIONS, *loads]})

    async def _index(self, request: HttpRequest) -> HttpResponse:
        only_ready = _field(_fields(request.body), "ready", bool, default=False)
        entries = await self._repository.index()
        return _json([_shown(each) for each in entries if not only_ready or each.state is IndexState.READY])

    async def _load(self, request: HttpRequest, model: str) -> HttpResponse:
        parameters = _field(_fields(request.body), "parameters", dict, default={})
        for parameter in parameters.keys() - {"url"}:
            raise BadInput(f"parameter {printable(parameter)} of a load is not supported: only url is")
        await self._repository.load(model, _field(parameters, "url", str, default=None))
        return _json({})

    async def _unload(self, _: HttpRequest, model: str) -> HttpResponse:
        await self._repository.unload(model)
        return _json({})

    async def _shared_memory(self, _: HttpRequest, **_name: str) -> HttpResponse:
        return HttpResponse.error(HTTPStatus.NOT_IMPLEMENTED, NO_SHARED_MEMORY)

    async def _statistics(self, _: HttpRequest, model: str = "", version: str = "") -> HttpResponse:
        """Of one model, or of all without a name. Raises UnknownModel."""
        index = [each for each in await self._repository.index() if each.version]
        if model and not any(each.model == model for each in index):
            raise UnknownModel(f"model {printable(model)} is not loaded")
        times = self._times()
        entries = [
            entry
            for name, versions in groupby(index, lambda each: each.model)
            if model in {"", name}
            for entry in model_statistics(name, [each.version for each in versions], times)
        ]
        if version:
            number = str(self._labels.get(version, version))
            entries = [entry for entry in entries if entry["version"] == number]
            if not entries:
                raise UnknownModel(f"model {printable(model)} has no version {printable(version)}")
        return _json({"model_stats": entries})


def _shown(entry: IndexedVersion) -> Mapping[str, str]:
    """An entry as Triton writes it: without a version it has neither a version nor a state."""
    shown = {
        "name": entry.model,
        "version": entry.version,
        "state": entry.state.value,
        "reason": entry.reason,
    }
    return {name: value for name, value in shown.items() if value or name != "version"}


def _fields(body: bytes) -> Mapping[str, Any]:
    """The fields of a body, which may be empty. Raises BadInput."""
    try:
        fields = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise BadInput("the body is not JSON") from None
    if not isinstance(fields, dict):
        raise BadInput("the body is not a JSON object")
    return fields


def _field(fields: Mapping[str, Any], name: str, kind: type, *, default: object) -> Any:
    """A field of this type, ``default`` without one. Raises BadInput."""
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise BadInput(f"{name} is not {_KINDS[kind]}")
    return value


_KINDS: Mapping[type, str] = {bool: "true or false", dict: "an object", str: "a text"}


def _json(answer: object, status: int = HTTPStatus.OK) -> HttpResponse:
    return HttpResponse(status, json.dumps(answer).encode())
