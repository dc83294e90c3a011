"""The console and the OpenAPI document of a run of many models."""

from http import HTTPStatus

from tfs_proxy.model.console import FACTS, HEADERS, StaticFile, at_root, facts, page_file
from tfs_proxy.run.control_api import nothing_at
from tfs_proxy.run.many_models.models import ModelRegistry
from tfs_proxy.run.many_models.on_demand import OnDemandModels
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import ArchiveError
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse
from tfs_proxy.wire.media_types import JSON
from tfs_proxy.wire.routes import CONSOLE, OPENAPI, ROOT, Handlers

NOT_LOADED = "not loaded"


class Pages:
    """Answers ``/``, the console's own paths and the document.

    The page reads a model's signatures from TF Serving's API, so nothing here asks a model server.
    """

    def __init__(
        self,
        registry: ModelRegistry,
        on_demand: OnDemandModels | None,
        settings: Settings,
    ) -> None:
        self._registry, self._on_demand, self._settings = registry, on_demand, settings
        console: Handlers = {CONSOLE: self._file} if settings.console else {}
        self.routes: Handlers = {ROOT: self._root, **console, OPENAPI: self._document}

    async def _root(self, request: HttpRequest) -> HttpResponse:
        return _shown_file(at_root(request.headers.get("accept"), has_console=self._settings.console))

    async def _file(self, request: HttpRequest, name: str) -> HttpResponse:
        file = StaticFile(await self._facts(), JSON, HEADERS) if name == FACTS else page_file(name)
        return nothing_at(request.path) if file is None else _shown_file(file)

    async def _facts(self) -> bytes:
        return facts(
            script=None,
            manyModels=True,
            defaultModel="",
            defaultAccept=None,
            maxPayloadBytes=self._settings.max_payload_bytes,
            restApi=self._settings.rest_api,
            labels=dict(self._settings.version_labels),
            models={},
            archives=await self._archives(),
        )

    async def _archives(self) -> dict[str, object]:
        """Archives that are loaded, or can be from an address: state, its reason, and their models."""
        archives: dict[str, object] = {}
        try:
            loadable = {} if self._on_demand is None else await self._on_demand.urls()
        except ArchiveError:  # the folder can't be read at the moment; loaded models are listed anyway
            loadable = {}
        for name, url in loadable.items():
            archives[name] = {"state": NOT_LOADED, "reason": "", "served": {}, "url": url}
        for model in self._registry.all():
            served = {name: sorted(numbers) for name, numbers in model.served.items()}
            archives[model.name] = {"state": model.state.of_model, "reason": model.reason, "served": served}
        return dict(sorted(archives.items()))

    async def _document(self, _: HttpRequest) -> HttpResponse:
        # It imports numpy, which no start should wait for.
        from tfs_proxy.model.openapi.bodies import ANY_MODEL, Service
        from tfs_proxy.model.openapi.document import document_text

        service = Service(
            (ANY_MODEL,),
            "model",
            rest_api=self._settings.rest_api,
            open_inference="script" if self._settings.publishes_open_inference else "off",
            console=self._settings.console,
            max_payload_bytes=self._settings.max_payload_bytes,
            many_models=True,
            target_model=self._on_demand is not None,
        )
        return HttpResponse(HTTPStatus.OK, document_text(service))


def _shown_file(file: StaticFile) -> HttpResponse:
    return HttpResponse(HTTPStatus.OK, file.body, {**file.headers, "Content-Type": file.content_type})
