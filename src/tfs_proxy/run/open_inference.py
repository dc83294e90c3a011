"""The run as the Open Inference Protocol shows it; its models answer for themselves."""

import json
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Final

from tfs_proxy import __version__
from tfs_proxy.run.control_api import ControlledStack
from tfs_proxy.run.host.sockets import accepts
from tfs_proxy.run.readiness import Readiness
from tfs_proxy.wire import routes
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse

ONLY_VERSION: Final = 1
"""The version of a script model, which has none of its own."""

SERVER_NAME: Final = "tfs_proxy"
EXTENSIONS: Final = ("binary_tensor_data",)

Versions = Mapping[str, Collection[int]]


def ready_versions(stack: ControlledStack) -> Versions:
    """The versions that serve, by model, of the one archive in a stack."""
    deployment, readiness = stack.deployment, stack.readiness
    if deployment is None:
        return {}
    if deployment.script_model is not None:
        return {} if readiness.reason() else {deployment.default_model: (ONLY_VERSION,)}
    return {model: readiness.available(model) for model in deployment.models}


class OpenInferenceApi:
    """Answers from the run's ``readiness`` now, and its ``versions`` that serve now.

    On ``translator`` the translator listens, if there is one.
    """

    def __init__(
        self, readiness: Callable[[], Readiness], versions: Callable[[], Versions], translator: Path
    ) -> None:
        self._readiness = readiness
        self._versions = versions
        self._translator = translator
        self.routes: routes.Handlers = {
            routes.SERVER: self._server,
            routes.LIVE: self._live,
            routes.READY: self._ready,
            routes.READY_VERSIONS: self._ready_versions,
        }

    async def _live(self, _: HttpRequest) -> HttpResponse:
        return _json({"live": True})

    async def _ready(self, _: HttpRequest) -> HttpResponse:
        ready = self._readiness().reason() is None and self._grpc_is_answered()
        return _json(
            {"live": True, "ready": ready}, HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
        )

    def _grpc_is_answered(self) -> bool:
        """Asks the translator itself; ``/ping`` does not, since its 503 would replace the container."""
        return not self._translator.exists() or accepts(self._translator)

    async def _server(self, _: HttpRequest) -> HttpResponse:
        return _json({"name": SERVER_NAME, "version": __version__, "extensions": EXTENSIONS})

    async def _ready_versions(self, _: HttpRequest) -> HttpResponse:
        return _json({model: sorted(versions) for model, versions in self._versions().items() if versions})


def _json(answer: object, status: int = HTTPStatus.OK) -> HttpResponse:
    return HttpResponse(status, json.dumps(answer).encode())
