"""Calls about the server, its repository and its statistics: the control API's answers as messages."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from google.protobuf import json_format

from tfs_proxy.values.names import is_version, printable
from tfs_proxy.wire.error_body import NO_MODEL_SERVER, error_text
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.http_answer import BrokenAnswer
from tfs_proxy.wire.http_messages import HttpResponse
from tfs_proxy.wire.protos import POOL
from tfs_proxy.wire.protos.open_inference import (
    ModelReadyRequest,
    ModelReadyResponse,
    ModelStatisticsRequest,
    ModelStatisticsResponse,
    RepositoryIndexRequest,
    RepositoryIndexResponse,
    RepositoryModelLoadRequest,
    RepositoryModelLoadResponse,
    RepositoryModelUnloadRequest,
    RepositoryModelUnloadResponse,
    ServerLiveResponse,
    ServerMetadataResponse,
    ServerReadyResponse,
)
from tfs_proxy.worker.router.calls import RefusedCall
from tfs_proxy.worker.router.control_client import ControlClient
from tfs_proxy.worker.router.forwarding import Handler
from tfs_proxy.worker.router.open_inference.infer_request import asked_version, parsed
from tfs_proxy.worker.router.open_inference.model_calls import ModelCalls

MOST_NAME_CHARACTERS: Final = 1000
NO_SUPERVISOR: Final = "the server's own state can't be asked for now"
_NOT_READY = frozenset({GrpcCode.NOT_FOUND, GrpcCode.INVALID_ARGUMENT, GrpcCode.FAILED_PRECONDITION})


class ServerCalls:
    """Calls to the supervisor, and to ``models`` for the meaning of a version label."""

    def __init__(self, control: ControlClient, models: ModelCalls) -> None:
        self._control = control
        self._models = models

    def methods(self) -> Mapping[str, Handler]:
        return {
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ServerMetadata": self._metadata,
            "ModelReady": self._model_ready,
            "ModelStatistics": self._statistics,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
        }

    @staticmethod
    async def _live(_message: bytes, _context: Any) -> bytes:
        return ServerLiveResponse(live=True).SerializeToString()

    async def _ready(self, _: bytes, _context: Any) -> bytes:
        answer = await self._ask("GET", "/v2/health/ready")
        return ServerReadyResponse(ready=answer.status == HTTPStatus.OK).SerializeToString()

    async def _metadata(self, _: bytes, _context: Any) -> bytes:
        return _message(ServerMetadataResponse(), await self._told("GET", "/v2"))

    async def _model_ready(self, message: bytes, context: Any) -> bytes:
        """Answer also for a model that is unknown or not loaded: this loads nothing."""
        request = parsed(ModelReadyRequest, message)
        asked = asked_version(request.name, request.version)
        entries = await self._versions(only_ready=True)
        versions = [entry.version for entry in entries if entry.name == asked.name]
        is_ready = bool(versions) if not asked.version else asked.version in versions
        if versions and not is_version(asked.version) and asked.version:
            is_ready = await self._is_label(asked, context)
        return ModelReadyResponse(ready=is_ready).SerializeToString()

    async def lists(self, model: str) -> bool:
        """True if the repository has the model, in any state."""
        return any(entry.name == model for entry in await self._versions(only_ready=False))

    async def _versions(self, *, only_ready: bool) -> list[Any]:
        answer = await self._told("POST", "/v2/repository/index", {"ready": only_ready})
        return list(_filled(RepositoryIndexResponse(), {"models": answer}).models)

    async def _is_label(self, asked: Any, context: Any) -> bool:
        try:
            await self._models.signature(asked, context)
        except RefusedCall as refused:
            if refused.code in _NOT_READY:
                return False
            raise
        return True

    async def _statistics(self, message: bytes, _context: Any) -> bytes:
        request = parsed(ModelStatisticsRequest, message)
        model = f"/{_quoted(request.name)}" if request.name else ""
        version = f"/versions/{_quoted(request.version)}" if model and request.version else ""
        told = await self._told("GET", f"/v2/models{model}{version}/stats")
        return _message(ModelStatisticsResponse(), told)

    async def _index(self, message: bytes, _context: Any) -> bytes:
        request = parsed(RepositoryIndexRequest, message)
        told = await self._told("POST", "/v2/repository/index", {"ready": request.ready})
        return _message(RepositoryIndexResponse(), {"models": told})

    async def _load(self, message: bytes, _context: Any) -> bytes:
        request = parsed(RepositoryModelLoadRequest, message)
        await self._change(request, "load")
        return RepositoryModelLoadResponse().SerializeToString()

    async def _unload(self, message: bytes, _context: Any) -> bytes:
        request = parsed(RepositoryModelUnloadRequest, message)
        await self._change(request, "unload")
        return RepositoryModelUnloadResponse().SerializeToString()

    async def _change(self, request: Any, change: str) -> None:
        parameters = {name: _value(value) for name, value in request.parameters.items()}
        path = f"/v2/repository/models/{_quoted(request.model_name)}/{change}"
        await self._told("POST", path, {"parameters": parameters})

    async def _told(self, method: str, path: str, body: object = None) -> Any:
        """JSON document of an answer. Raises RefusedCall with the reason if there is none."""
        answer = await self._ask(method, path, b"" if body is None else json.dumps(body).encode())
        if answer.status != HTTPStatus.OK:
            raise RefusedCall.for_status(answer.status, error_text(answer.body) or NO_MODEL_SERVER)
        return json.loads(answer.body)

    async def _ask(self, method: str, path: str, body: bytes = b"") -> HttpResponse:
        try:
            return await self._control.ask(method, path, body)
        except (OSError, BrokenAnswer):
            raise RefusedCall(GrpcCode.UNAVAILABLE, NO_SUPERVISOR) from None


def _quoted(name: str) -> str:
    """Quote the name as a part of a path. Raises RefusedCall for one that nothing can have."""
    if len(name) > MOST_NAME_CHARACTERS:
        raise RefusedCall(GrpcCode.NOT_FOUND, f"there is no model or version {printable(name[:40])}...")
    return quote(name, safe="")


def _message(message: Any, fields: dict[str, Any]) -> bytes:
    serialized: bytes = _filled(message, fields).SerializeToString()
    return serialized


def _filled(message: Any, fields: dict[str, Any]) -> Any:
    return json_format.ParseDict(fields, message, ignore_unknown_fields=True, descriptor_pool=POOL)


def _value(parameter: Any) -> object:
    """Convert a parameter to JSON; bytes, which nothing takes, to null."""
    kind = parameter.WhichOneof("parameter_choice")
    return None if kind in {None, "bytes_param"} else getattr(parameter, kind)
