"""GET /openapi.json of a multi-model endpoint, on the control API: no single model's workers know it."""

from http import HTTPStatus

from tfs_proxy.observe.routes import OPENAPI
from tfs_proxy.supervisor.control_api import ALLOWED
from tfs_proxy.wire.error_body import not_allowed
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse


class DescriptionApi:
    """Answers with the document of a run that publishes TF Serving's ``rest_api``, and ``open_inference``."""

    def __init__(self, *, rest_api: bool, open_inference: bool) -> None:
        self._rest_api = rest_api
        self._open_inference = open_inference

    async def respond(self, request: HttpRequest) -> HttpResponse | None:
        """Answer a request; None for a path that is not the document's."""
        if request.path != OPENAPI:
            return None
        if request.method not in {"GET", "HEAD"}:
            text = not_allowed(request.method, ALLOWED)
            return HttpResponse.error(HTTPStatus.METHOD_NOT_ALLOWED, text, headers={"Allow": ALLOWED})
        return HttpResponse(HTTPStatus.OK, self._document())

    def _document(self) -> bytes:
        # PERF: it imports numpy, which no start should wait for.
        from tfs_proxy.openapi.document import document_of_many, document_text

        return document_text(document_of_many(rest_api=self._rest_api, open_inference=self._open_inference))
