"""The control API of a run of many models: its handlers, the console's and the inference protocol's."""

from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from pathlib import Path

from tfs_proxy.model.console import FACTS, HEADERS, StaticFile, at_root, facts, page_file
from tfs_proxy.run.control_api import (
    ControlApi,
    ControlledStack,
    Measure,
    nothing_at,
    served_models,
)
from tfs_proxy.run.guarded import words_of
from tfs_proxy.run.many_models.api import ModelsApi
from tfs_proxy.run.many_models.models import ModelRegistry, ModelStacks
from tfs_proxy.run.many_models.on_demand import OnDemandModels, load_below
from tfs_proxy.run.open_inference import ONLY_VERSION, OpenInferenceApi, Versions
from tfs_proxy.run.readiness import StackState
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import ArchiveError
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse
from tfs_proxy.wire.media_types import JSON
from tfs_proxy.wire.routes import CONSOLE, OPENAPI, ROOT, Handlers

MODELS_DIR = "/opt/ml/models"
NOT_LOADED = "not loaded"


class ConsoleApi:
    """Answers ``/`` and the console's own paths; ``versions`` has the models of an archive that serves.

    The page reads a model's signatures from TF Serving's API, so nothing here asks a model server.
    """

    def __init__(
        self,
        registry: ModelRegistry,
        versions: Callable[[str], Mapping[str, Collection[int]]],
        on_demand: OnDemandModels | None,
        settings: Settings,
    ) -> None:
        self._registry = registry
        self._versions = versions
        self._on_demand = on_demand
        self._settings = settings

    @property
    def routes(self) -> Handlers:
        return {ROOT: self._root, **({CONSOLE: self._file} if self._settings.console else {})}

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
        loadable = (await self._loadable()).items()
        archives: dict[str, object] = {name: {**_shown(NOT_LOADED), "url": url} for name, url in loadable}
        for model in self._registry.all():
            served = {name: sorted(numbers) for name, numbers in self._versions(model.name).items()}
            archives[model.name] = _shown(model.state.of_model, model.reason, served)
        return dict(sorted(archives.items()))

    async def _loadable(self) -> Mapping[str, str]:
        """Empty if the folder can't be read at the moment; loaded models are listed anyway."""
        if self._on_demand is None:
            return {}
        try:
            return await self._on_demand.urls()
        except ArchiveError:
            return {}


def _shown(state: str, reason: str = "", served: Mapping[str, object] | None = None) -> dict[str, object]:
    return {"state": state, "reason": reason, "served": served or {}}


def _shown_file(file: StaticFile) -> HttpResponse:
    return HttpResponse(HTTPStatus.OK, file.body, {**file.headers, "Content-Type": file.content_type})


def make_control_api(
    settings: Settings,
    common: ControlledStack,
    measure: Measure,
    registry: ModelRegistry,
    stacks: ModelStacks,
    on_demand: OnDemandModels | None,
    translator: Path,
) -> ControlApi:
    """The control API about ``common`` parts, not open yet.

    ``measure`` answers scrapes.
    Without ``on_demand``, only requests to load a model load one. The translator listens on ``translator``.
    """
    load = load_below((MODELS_DIR, *words_of(settings.model_folders)), registry, on_demand)

    def served() -> Collection[str] | None:
        names = [model for loaded in registry.list() for model in stacks.versions(loaded.name)]
        return names if settings.rest_api else None

    protocol = OpenInferenceApi(
        lambda: common.readiness, lambda: _ready_versions(registry, stacks.versions), translator
    )
    routes = {
        **_description(settings, target_model=on_demand is not None),
        **ModelsApi(registry, settings.request_timeout_seconds, on_demand, stacks.is_served, load).routes,
        **ConsoleApi(registry, stacks.versions, on_demand, settings).routes,
        **(protocol.routes if settings.publishes_open_inference else {}),
        **served_models(served),
    }
    return ControlApi(common, routes, measure=measure)


def _ready_versions(
    registry: ModelRegistry, versions: Callable[[str], Mapping[str, Collection[int]]]
) -> Versions:
    """The versions that serve, by model; a script model has one."""
    ready: dict[str, Collection[int]] = {}
    for model in registry.all():
        if model.state is StackState.READY:
            ready |= versions(model.name) or {model.name: (ONLY_VERSION,)}
    return ready


def _description(settings: Settings, *, target_model: bool) -> Handlers:
    """The OpenAPI document; ``target_model`` says that requests to ``/invocations`` may name an archive."""

    async def answer(_: HttpRequest) -> HttpResponse:
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
            target_model=target_model,
        )
        return HttpResponse(HTTPStatus.OK, document_text(service))

    return {OPENAPI: answer}
