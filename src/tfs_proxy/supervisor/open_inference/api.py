"""The part of the Open Inference Protocol's REST that the control API answers, with Triton's extensions.

nginx, the workers without it, and the gRPC router ask here about the server, its repository and its
statistics; workers answer requests about one model (its metadata, its configuration, an inference).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from tfs_proxy import __version__
from tfs_proxy.errors import BadInput, UnknownModel
from tfs_proxy.names import printable
from tfs_proxy.observe.routes import LIVE, READY, SHARED_MEMORY
from tfs_proxy.supervisor.health.readiness import Readiness
from tfs_proxy.supervisor.host.sockets import accepts
from tfs_proxy.supervisor.open_inference.repository import IndexedVersion, IndexState, Repository
from tfs_proxy.supervisor.open_inference.statistics import InferenceTimes, model_statistics
from tfs_proxy.wire.error_body import NO_SHARED_MEMORY
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse
from tfs_proxy.wire.routes import GET, Route

SERVER_NAME: Final = "tfs_proxy"
EXTENSIONS = ("binary_tensor_data", "model_configuration", "statistics")
REPOSITORY_EXTENSION: Final = "model_repository"
POST: Final = ("POST",)

_MODEL = "(?P<model>[^/]+)"


class OpenInferenceApi:
    """Answers from the run's ``readiness`` and its ``repository``; ``times`` measures inferences now.

    ``labels`` are other names of versions; on ``grpc_router`` the gRPC router listens, if there is one.
    """

    def __init__(
        self,
        readiness: Readiness,
        repository: Repository,
        times: Callable[[], InferenceTimes],
        labels: Mapping[str, int],
        grpc_router: Path,
    ) -> None:
        self.readiness = readiness
        self._repository = repository
        self._times = times
        self._labels = labels
        self._grpc_router = grpc_router
        self.routes: Sequence[Route] = (
            Route("/v2/?", GET, self._server),
            Route(LIVE, GET, self._live, early=True),
            Route(READY, GET, self._ready, early=True),
            Route("/v2/repository/index", POST, self._index),
            Route(rf"/v2/repository/models/{_MODEL}/load", POST, self._load),
            Route(rf"/v2/repository/models/{_MODEL}/unload", POST, self._unload),
            Route(rf"/v2/models/(?:{_MODEL}/(?:versions/(?P<version>[^/]+)/)?)?stats", GET, self._statistics),
            Route(SHARED_MEMORY, (*GET, *POST), self._shared_memory),
        )

    async def _live(self, _: HttpRequest) -> HttpResponse:
        return _json({"live": True})

    async def _ready(self, _: HttpRequest) -> HttpResponse:
        ready = self.readiness.reason() is None and self._grpc_is_answered()
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

    async def _shared_memory(self, _: HttpRequest) -> HttpResponse:
        return HttpResponse.error(HTTPStatus.NOT_IMPLEMENTED, NO_SHARED_MEMORY)

    async def _statistics(self, _: HttpRequest, model: str, version: str) -> HttpResponse:
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
