"""The HTTP API of multi-model endpoints on the control API: nginx -> here -> ModelRegistry.

docs/reference/sagemaker.md has the calls; nginx asks ``/models/NAME/ready`` when a model has no gate, and
``/served/NAME/ready`` with the name that the model server has for it, ``/reachable/NAME/ready`` with either.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import parse_qs

from msgspec import Struct
from msgspec.json import decode
from msgspec.structs import replace

from tfs_proxy.model.stores import is_remote
from tfs_proxy.run.many_models.model import Model
from tfs_proxy.run.many_models.models import ModelRegistry
from tfs_proxy.run.many_models.on_demand import Load, OnDemandModels
from tfs_proxy.run.nginx.many_models import SENDS_ON
from tfs_proxy.values.errors import BadInput, UnknownModel, UnsupportedMediaType
from tfs_proxy.values.names import INNER, LOADED_MODEL, LOADED_MODEL_RULE, is_model_name
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse
from tfs_proxy.wire.media_types import JSON, parse
from tfs_proxy.wire.routes import LOAD, LOADED, MODEL, MODELS, REACHABLE, SERVED, UNLOAD, Handlers

PAGE_SIZE: Final = 100
PAGE_FIELD: Final = "next_page_token"
SHAPE: Final = '{"model_name": "NAME", "url": "/PATH/TO/MODEL"}'


class LoadRequest(Struct):
    """Body of a request to load a model."""

    model_name: str
    """Name under which it is loaded."""

    url: str
    """Its path or address."""


def read_load_request(body: bytes) -> LoadRequest:
    """Reads and checks a body; ignores unknown fields. Raises BadInput that names the field at fault."""
    try:
        request = decode(body, type=LoadRequest)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"not a load request: {error}; send {SHAPE}") from None
    if not is_model_name(request.model_name, LOADED_MODEL):
        raise BadInput(
            f"not a load request: model_name can't be a model's name, which has {LOADED_MODEL_RULE}"
        )
    url = request.url
    if not (is_remote(url) or PurePosixPath(url).is_absolute()) or not url.isprintable():
        raise BadInput("not a load request: url is not an absolute path on this machine")
    return request


def page(models: Sequence[Model], query: str) -> tuple[Sequence[Model], str | None]:
    """The models of the page that a query asks for, and the token of the next, if there is one.

    ``models`` are sorted by name. The token holds the last name of its page, so that loads and unloads
    between two pages make no other model appear twice or never. Raises BadInput for any other token.
    """
    tokens = parse_qs(query, keep_blank_values=True).get(PAGE_FIELD, [])
    if len(tokens) > 1:
        raise BadInput(f"{PAGE_FIELD} stands more than once in the query")
    last = ""
    for token in tokens:
        with suppress(ValueError):
            last = urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode("ascii")
        if not is_model_name(last, LOADED_MODEL) or _token_after(last) != token:
            raise BadInput(f"{PAGE_FIELD} is not one that a list of models has given")
    rest = [model for model in models if model.name > last]
    shown = rest[:PAGE_SIZE]
    return shown, _token_after(shown[-1].name) if len(rest) > PAGE_SIZE else None


def _token_after(name: str) -> str:
    return urlsafe_b64encode(name.encode()).decode().rstrip("=")


class ModelsApi:
    """Loads, lists and unloads models; a request may wait ``ready_seconds`` for a load.

    ``on_demand`` loads what a request needs; ``load`` takes the paths of clients.
    """

    def __init__(
        self,
        registry: ModelRegistry,
        ready_seconds: float,
        on_demand: OnDemandModels | None = None,
        load: Load | None = None,
    ) -> None:
        self._registry = registry
        self._ready_seconds = ready_seconds
        self._load_from = load or registry.load
        self._until_ready = registry.ready if on_demand is None else on_demand.ready
        self.routes: Handlers = {
            MODELS: self._list,
            LOAD: self._load,
            MODEL: self._get,
            UNLOAD: self._unload,
            LOADED: self._ready,
            SERVED: self._served,
            REACHABLE: self._reachable,
        }

    async def _load(self, request: HttpRequest) -> HttpResponse:
        # Any other type, or none, a web page can send without asking first.
        if parse(request.headers.get("content-type") or "none/none").name != JSON:
            raise UnsupportedMediaType(f"not a load request: send it with Content-Type: {JSON}")
        model = read_load_request(request.body)
        await self._load_from(model.model_name, model.url)
        return _sentence(f"model {model.model_name} is loaded")

    async def _list(self, request: HttpRequest) -> HttpResponse:
        models, next_token = page(self._registry.list(), request.query)
        answer: dict[str, object] = {"models": [_shown(model) for model in models]}
        if next_token is not None:
            answer["nextPageToken"] = next_token
        return _json(answer)

    async def _get(self, _: HttpRequest, name: str) -> HttpResponse:
        model = self._registry.get(name)
        if not model.is_loaded:
            raise UnknownModel(f"model {name} is {model.state.of_model}")
        return _json(_shown(model))

    async def _unload(self, _: HttpRequest, name: str) -> HttpResponse:
        await self._registry.unload(name)
        return _sentence(f"model {name} is unloaded")

    async def _ready(self, _: HttpRequest, name: str) -> HttpResponse:
        await self._until_ready(name, self._ready_seconds)
        return replace(_sentence(f"model {name} is ready"), headers=dict(SENDS_ON))

    async def _served(self, request: HttpRequest, name: str) -> HttpResponse:
        """The readiness of the archive whose model has the name ``name`` on the model server."""
        ready, loaded_name = await self._ready_archive(request, name)
        if self._is_served(name):
            return ready
        raise UnknownModel(
            f"no model server has a model {name}: the archive loaded as {loaded_name} has others, or its "
            "script is the model"
        )

    async def _reachable(self, request: HttpRequest, name: str) -> HttpResponse:
        """The readiness of the archive that is loaded as ``name``, or has a model of that name."""
        ready, loaded_name = await self._ready_archive(request, name)
        if name == loaded_name or self._is_served(name):
            return ready
        raise UnknownModel(f"there is no model {name}: the archive loaded as {loaded_name} has others")

    def _is_served(self, name: str) -> bool:
        """True if a model server has this name for a model."""
        return any(name in model.served for model in self._registry.all())

    async def _ready_archive(self, request: HttpRequest, name: str) -> tuple[HttpResponse, str]:
        """The answer for the archive that can have a model ``name``, and the name that it is loaded as.

        The longest name that a loaded archive can have counts.
        """
        parts = name.split(INNER)
        for count in range(len(parts), 0, -1):
            loaded_name = INNER.join(parts[:count])
            with suppress(UnknownModel):
                if is_model_name(loaded_name, LOADED_MODEL):
                    return await self._ready(request, loaded_name), loaded_name
        raise UnknownModel(f"model {name} is not loaded")


def _shown(model: Model) -> Mapping[str, str]:
    shown = {"modelName": model.name, "modelUrl": model.url}
    return shown | {"unhealthy": model.unhealthy} if model.unhealthy else shown


def _sentence(text: str) -> HttpResponse:
    return _json({"message": text})


def _json(answer: object) -> HttpResponse:
    return HttpResponse(HTTPStatus.OK, json.dumps(answer).encode())
