"""Resources of the console: the root, and the files and facts below /console/."""

import falcon
from msgspec.structs import replace

from tfs_proxy.model.console import (
    FACTS,
    HEADERS,
    StaticFile,
    at_root,
    facts,
    page_file,
    shown_signature,
)
from tfs_proxy.model.graph_inputs import known_inputs
from tfs_proxy.model.openapi.description import Description
from tfs_proxy.serving.plane import DataPlane
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.errors import TfsProxyError
from tfs_proxy.values.layout import recorded_names
from tfs_proxy.values.signature import Target
from tfs_proxy.wire.routes import CONSOLE, ROOT

LONGEST_EXAMPLE = 64 * 1024


class Root:
    """Page for browsers, ``{"status": "alive"}`` for everyone else."""

    method = "GET"

    def __init__(self, *, has_console: bool) -> None:
        self._has_console = has_console

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer by the Accept header; one that can't be met gets the JSON."""
        _write(resp, at_root(req.get_header("Accept"), has_console=self._has_console))

    on_head = on_get


class PageFiles:
    method = "GET"

    def on_get(self, _req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Answer with a file; 404 if the page has no such file."""
        file = page_file(name)
        if file is None:
            raise falcon.HTTPRouteNotFound
        _write(resp, file)

    on_head = on_get


class PageFacts:
    """Facts about the models for the page; ``plane`` is None if the script is the model.

    ``description`` is what the script declares of its bodies.
    """

    method = "GET"

    def __init__(
        self, deployment: Deployment, plane: DataPlane | None, description: Description | None
    ) -> None:
        self._deployment = deployment
        self._plane = plane
        self._declared = {} if description is None else _declared(description)

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with models, versions and signatures, read anew: there may be a new version."""
        deployment = self._deployment
        labels = {}
        for name in deployment.models:  # the settings give labels also to models without the version
            found = {each: self._signatures(Target(name, label=each)) for each in deployment.version_labels}
            labels[name] = {each: of for each, of in found.items() if of["signatures"]}
        graph = known_inputs(deployment.graph_folders.get(deployment.default_model))
        resp.data = facts(
            script="the model" if deployment.script_model is not None else bool(deployment.script),
            takesPictures=graph.decodes_pictures and not graph.from_base64,
            manyModels=False,
            defaultModel=deployment.default_model,
            defaultAccept=deployment.default_accept,
            maxPayloadBytes=deployment.bodies.payload_bytes,
            restApi=deployment.publishes_rest,
            models={
                name: {str(each or ""): self._signatures(Target(name, each)) for each in numbers or (None,)}
                for name, numbers in deployment.models.items()
            },
            labels=labels,
            declared=self._declared,
        )
        resp.set_headers(dict(HEADERS))

    on_head = on_get

    def _signatures(self, target: Target) -> dict[str, object]:
        """Signatures of a version, or the reason why they are not known; without a number, of the newest."""
        if self._plane is None:
            return {"signatures": {}}
        served = replace(target, model=self._deployment.served_name(target.model))
        try:
            signatures = self._plane.signatures_of(served)
        except TfsProxyError as error:
            return {"signatures": {}, "reason": str(error)}
        return {
            "signatures": {name: shown_signature(each) for name, each in signatures.items()},
            "ownNames": recorded_names(self._deployment.graph_folders.get(served.model)),
        }


def _declared(description: Description) -> dict[str, object]:
    """Schemas and examples of requests by media type; an example that is no text is left out."""
    found: dict[str, object] = {}
    for name in description.accepts or description.examples:
        text = description.examples.get(name, b"").decode(errors="replace")
        shown = text if text and "\ufffd" not in text and len(text) <= LONGEST_EXAMPLE else None
        found[name] = {"schema": (description.accepts or {}).get(name), "example": shown}
    return found


def add_routes(
    app: falcon.App,  # type: ignore[type-arg]
    deployment: Deployment,
    plane: DataPlane | None,
    description: Description | None = None,
) -> None:
    """Add ``GET /`` in any case, the page's files if it is on."""
    app.add_route(ROOT.path, Root(has_console=deployment.doors.console))
    if deployment.doors.console:
        app.add_route(CONSOLE.path.format(name=FACTS), PageFacts(deployment, plane, description))
        app.add_route(CONSOLE.path, PageFiles())


def _write(resp: falcon.Response, file: StaticFile) -> None:
    resp.data = file.body
    resp.content_type = file.content_type
    resp.set_headers(dict(file.headers))
