"""The page to try the models while models come and go: nginx -> control API -> here -> `console.pages`."""

from collections.abc import Callable, Iterable
from http import HTTPStatus

from tfs_proxy.console.pages import FACTS, FOLDER, HEADERS, ROOT, StaticFile, at_root, facts, page_file
from tfs_proxy.payload.media_types import JSON
from tfs_proxy.supervisor.control_api import ALLOWED
from tfs_proxy.wire.error_body import not_allowed
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse


class ConsoleApi:
    """Answers ``/`` and the page's own paths; ``loaded`` names the models that can be asked now.

    The page reads a model's signature from TF Serving's API, so nothing here asks a model server.
    """

    def __init__(self, loaded: Callable[[], Iterable[str]], max_payload_bytes: int, *, is_on: bool) -> None:
        self._loaded = loaded
        self._max_payload_bytes = max_payload_bytes
        self._is_on = is_on

    async def respond(self, request: HttpRequest) -> HttpResponse | None:
        """Answer a request; None for a path that is not of the page."""
        file = self._file(request)
        if file is None:
            return None
        if request.method not in {"GET", "HEAD"}:
            text = not_allowed(request.method, ALLOWED)
            return HttpResponse.error(HTTPStatus.METHOD_NOT_ALLOWED, text, headers={"Allow": ALLOWED})
        headers = {**file.headers, "Content-Type": file.content_type}
        return HttpResponse(HTTPStatus.OK, file.body, headers)

    def _file(self, request: HttpRequest) -> StaticFile | None:
        if request.path == ROOT:
            return at_root(request.headers.get("accept"), has_console=self._is_on)
        if not self._is_on or not request.path.startswith(FOLDER):
            return None
        name = request.path.removeprefix(FOLDER)
        return StaticFile(self._facts(), JSON, HEADERS) if name == FACTS else page_file(name)

    def _facts(self) -> bytes:
        return facts(
            script=None,
            manyModels=True,
            defaultModel="",
            defaultAccept=None,
            maxPayloadBytes=self._max_payload_bytes,
            models={name: {} for name in self._loaded()},
        )
