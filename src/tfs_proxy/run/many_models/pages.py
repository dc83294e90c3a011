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


def page_routes(registry: ModelRegistry, on_demand: OnDemandModels | None, settings: Settings) -> Handlers:
    """Answers ``/``, the console's own paths and the document.

    The page reads a model's signatures from TF Serving's API, so nothing here asks a model server.
    """

    async def root(request: HttpRequest) -> HttpResponse:
        return _shown_file(at_root(request.headers.get("accept"), has_console=settings.console))

    async def page(request: HttpRequest, name: str) -> HttpResponse:
        file = page_file(name)
        if name == FACTS:
            archives = dict(sorted((await _archives(registry, on_demand)).items()))
            text = facts(
                script=None,
                manyModels=True,
                defaultModel="",
                defaultAccept=None,
                maxPayloadBytes=settings.max_payload_bytes,
                restApi=settings.rest_api,
                labels=dict(settings.version_labels),
                models={},
                archives=archives,
            )
            file = StaticFile(text, JSON, HEADERS)
        return nothing_at(request.path) if file is None else _shown_file(file)

    async def document(_: HttpRequest) -> HttpResponse:
        # It imports numpy, which no start should wait for.
        from tfs_proxy.model.openapi.bodies import ANY_MODEL, Service
        from tfs_proxy.model.openapi.document import document_text

        service = Service(
            (ANY_MODEL,),
            "model",
            rest_api=settings.rest_api,
            open_inference="script" if settings.publishes_open_inference else "off",
            console=settings.console,
            max_payload_bytes=settings.max_payload_bytes,
            many_models=True,
            target_model=on_demand is not None,
        )
        return HttpResponse(HTTPStatus.OK, document_text(service))

    console: Handlers = {CONSOLE: page} if settings.console else {}
    return {ROOT: root, **console, OPENAPI: document}


async def _archives(registry: ModelRegistry, on_demand: OnDemandModels | None) -> dict[str, object]:
    """Archives that are loaded, or can be from an address: state, its reason, and their models."""
    try:
        loadable = {} if on_demand is None else await on_demand.urls()
    except ArchiveError:  # the folder can't be read at the moment; loaded models are listed anyway
        loadable = {}
    archives: dict[str, object] = {
        name: {"state": NOT_LOADED, "reason": "", "served": {}, "url": url} for name, url in loadable.items()
    }
    for model in registry.all():
        served = {name: sorted(numbers) for name, numbers in model.served.items()}
        archives[model.name] = {"state": model.state.of_model, "reason": model.reason, "served": served}
    return archives


def _shown_file(file: StaticFile) -> HttpResponse:
    return HttpResponse(HTTPStatus.OK, file.body, {**file.headers, "Content-Type": file.content_type})
