"""GET /openapi.json of a multi-model endpoint, on the control API: no single model's workers know it."""

import re
from collections.abc import Sequence
from http import HTTPStatus

from tfs_proxy.observe.routes import OPENAPI
from tfs_proxy.settings import Settings
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse
from tfs_proxy.wire.routes import GET, Route


class DescriptionApi:
    """Answers with the document of a run with these settings.

    ``target_model`` says that requests to ``/invocations`` may name an archive.
    """

    def __init__(self, settings: Settings, *, target_model: bool) -> None:
        self._settings = settings
        self._target_model = target_model

    @property
    def routes(self) -> Sequence[Route]:
        """The document's path, for the control API."""
        return (Route(re.escape(OPENAPI), GET, self._answer),)

    async def _answer(self, _: HttpRequest) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, self._document())

    def _document(self) -> bytes:
        # PERF: it imports numpy, which no start should wait for.
        from tfs_proxy.openapi.document import document_of_many, document_text
        from tfs_proxy.openapi.service import AnyModel, Service

        settings = self._settings
        service = Service(
            (AnyModel(),),
            "model",
            rest_api=settings.rest_api,
            open_inference="script" if settings.publishes_open_inference else "off",
            console=settings.console,
            max_payload_bytes=settings.max_payload_bytes,
        )
        return document_text(document_of_many(service, target_model=self._target_model))
