"""The run as the Open Inference Protocol shows it; its models answer for themselves."""

import json
from http import HTTPStatus
from pathlib import Path
from typing import Final

from tfs_proxy import __version__
from tfs_proxy.run.host.sockets import accepts
from tfs_proxy.run.run import Stacks
from tfs_proxy.wire import routes
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse

ONLY_VERSION: Final = 1
"""The version of a script model, which has none of its own."""

SERVER_NAME: Final = "tfs_proxy"
EXTENSIONS: Final = ("binary_tensor_data",)


def open_inference_routes(run: Stacks, translator: Path) -> routes.Handlers:
    """Answers for the run; on ``translator`` the translator listens, if there is one."""

    async def live(_: HttpRequest) -> HttpResponse:
        return _json({"live": True})

    def answers() -> bool:
        # Asks the translator itself; ``/ping`` does not, since its 503 would replace the container.
        return run.readiness.reason() is None and (not translator.exists() or accepts(translator))

    async def ready(_: HttpRequest) -> HttpResponse:
        status = HTTPStatus.OK if (is_ready := answers()) else HTTPStatus.SERVICE_UNAVAILABLE
        return _json({"live": True, "ready": is_ready}, status)

    async def server(_: HttpRequest) -> HttpResponse:
        return _json({"name": SERVER_NAME, "version": __version__, "extensions": EXTENSIONS})

    async def those_ready(_: HttpRequest) -> HttpResponse:
        return _json({model: sorted(numbers) for model, numbers in run.ready_versions().items() if numbers})

    table = {routes.SERVER: server, routes.LIVE: live, routes.READY: ready}
    return {**table, routes.READY_VERSIONS: those_ready}


def _json(answer: object, status: int = HTTPStatus.OK) -> HttpResponse:
    return HttpResponse(status, json.dumps(answer).encode())
