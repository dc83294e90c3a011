"""GET /openapi.json of a multi-model endpoint, on the control API: no single model's workers know it."""

from http import HTTPStatus

from tfs_proxy.observe.routes import OPENAPI
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor.control_api import ALLOWED, Respond
from tfs_proxy.wire.error_body import not_allowed
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse


class DescriptionApi:
    """Answers with the document of a run with these settings; other requests are those of ``models``."""

    def __init__(self, settings: Settings, models: Respond) -> None:
        self._settings = settings
        self._models = models

    async def respond(self, request: HttpRequest) -> HttpResponse | None:
        """Answer a request; None for a path that is neither the document's nor of models."""
        if request.path != OPENAPI:
            return await self._models(request)
        if request.method not in {"GET", "HEAD"}:
            text = not_allowed(request.method, ALLOWED)
            return HttpResponse.error(HTTPStatus.METHOD_NOT_ALLOWED, text, headers={"Allow": ALLOWED})
        return HttpResponse(HTTPStatus.OK, self._document())

    def _document(self) -> bytes:
        # PERF: it imports numpy, which no start should wait for.
        from tfs_proxy.openapi.document import document_of_many, document_text

        settings = self._settings
        document = document_of_many(
            rest_api=settings.rest_api, open_inference=settings.open_inference != "off"
        )
        return document_text(document)
