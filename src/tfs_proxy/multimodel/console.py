"""The page to try the models while models come and go: nginx -> control API -> here -> `console`."""

from collections.abc import Callable, Collection, Mapping, Sequence
from http import HTTPStatus

from tfs_proxy.console import FACTS, FOLDER, HEADERS, ROOT, StaticFile, at_root, facts, page_file
from tfs_proxy.errors import ArchiveError
from tfs_proxy.multimodel.on_demand import OnDemandModels
from tfs_proxy.multimodel.registry import ModelRegistry
from tfs_proxy.multimodel.repository import NOT_LOADED
from tfs_proxy.payload.media_types import JSON
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor.control_api import nothing_at
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse
from tfs_proxy.wire.routes import GET, Route


class ConsoleApi:
    """Answers ``/`` and the page's own paths; ``versions`` has the models of an archive that serves.

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
    def routes(self) -> Sequence[Route]:
        """Paths of the page, for the control API."""
        files = (Route(f"{FOLDER}(?P<name>.*)", GET, self._file),)
        return (Route(ROOT, GET, self._root), *(files if self._settings.console else ()))

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
            loadsByName=self._on_demand is not None and self._settings.publishes_open_inference,
            labels=dict(self._settings.version_labels),
            models={},
            archives=await self._archives(),
        )

    async def _archives(self) -> dict[str, object]:
        """All that are loaded or could be by their name: state, its reason, and the models in them."""
        archives: dict[str, object] = {name: _shown(NOT_LOADED) for name in await self._loadable()}
        for model in self._registry.all():
            served = {name: sorted(numbers) for name, numbers in self._versions(model.name).items()}
            archives[model.name] = _shown(model.state.value, model.reason, served)
        return dict(sorted(archives.items()))

    async def _loadable(self) -> Collection[str]:
        """Nothing if the folder can't be read at this moment: what is loaded is there all the same."""
        if self._on_demand is None:
            return ()
        try:
            return await self._on_demand.names()
        except ArchiveError:
            return ()


def _shown(state: str, reason: str = "", served: Mapping[str, object] | None = None) -> dict[str, object]:
    return {"state": state, "reason": reason, "served": served or {}}


def _shown_file(file: StaticFile) -> HttpResponse:
    return HttpResponse(HTTPStatus.OK, file.body, {**file.headers, "Content-Type": file.content_type})
