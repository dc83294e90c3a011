"""Resources of the protocol for an archive's models: metadata, readiness, inference."""

from collections.abc import Callable
from typing import Protocol

import falcon
import msgspec

from tfs_proxy.data.open_inference.datatypes import model_metadata
from tfs_proxy.observe.logs.reasons import note_refusal
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.errors import UnknownModel
from tfs_proxy.values.names import printable
from tfs_proxy.values.signature import Signature, Target
from tfs_proxy.wire.routes import INFER, METADATA, MODEL_READY
from tfs_proxy.worker.inference_protocol.framing import ONLY_VERSION, target_of

GetSignature = Callable[[Target], Signature]
Serves = Callable[[Target], bool]
"""Function that asks if the model server has a target loaded now."""


class Inference(Protocol):
    def answer(self, req: falcon.Request, resp: falcon.Response, target: Target, name: str) -> None:
        """Answer one request for a target, which the client calls ``name``. Raises RequestError."""


class MetadataResource:
    """Resource ``GET /v2/models/M[/versions/V]``; without ``signature`` it is a script."""

    method = "GET"

    def __init__(self, deployment: Deployment, signature: GetSignature | None) -> None:
        self._deployment = deployment
        self._signature = signature

    def on_get(
        self, _req: falcon.Request, resp: falcon.Response, model: str, version: str | None = None
    ) -> None:
        """Answer with the model's versions, and the tensors of its default signature.

        Raises UnknownModel, and UpstreamRefused for a missing version.
        """
        target = target_of(self._deployment, model, version)
        versions = self._deployment.models.get(target.model, (ONLY_VERSION,))
        signature = None if self._signature is None else self._signature(target)
        resp.data = msgspec.json.encode(model_metadata(model, versions, signature))


class ReadyResource:
    """Resource ``GET /v2/models/M[/versions/V]/ready``; without ``serves`` it is a script, and ready."""

    method = "GET"

    def __init__(self, deployment: Deployment, serves: Serves | None) -> None:
        self._deployment = deployment
        self._serves = serves

    def on_get(
        self, _req: falcon.Request, resp: falcon.Response, model: str, version: str | None = None
    ) -> None:
        """Answer 503 if the model server has it not loaded. Raises UnknownModel for an unknown version."""
        target = target_of(self._deployment, model, version)
        versions = self._deployment.models.get(target.model, (ONLY_VERSION,))
        known = target.label is None and target.version in {None, *versions}
        ready = known if self._serves is None else self._serves(target)
        if not ready and not known and (self._serves is None or self._serves(Target(target.model))):
            raise UnknownModel(f"The model {model} has no version {printable(version or '')}.")
        document: dict[str, object] = {"name": model, "ready": ready}
        if not ready:
            resp.status = falcon.HTTP_503
            document["error"] = reason = f"model {model} is not ready"
            note_refusal(reason)
        resp.data = msgspec.json.encode(document)


class InferResource:
    """Resource ``POST /v2/models/M[/versions/V]/infer``."""

    method = "POST"

    def __init__(self, deployment: Deployment, inference: Inference) -> None:
        self._deployment = deployment
        self._inference = inference

    def on_post(
        self, req: falcon.Request, resp: falcon.Response, model: str, version: str | None = None
    ) -> None:
        """Answer one inference (docs/reference/open-inference.md)."""
        self._inference.answer(req, resp, target_of(self._deployment, model, version), model)


def add_routes(
    app: "falcon.App[falcon.Request, falcon.Response]",
    deployment: Deployment,
    inference: Inference,
    signature: GetSignature | None,
    serves: Serves | None,
) -> None:
    resources = {
        METADATA: MetadataResource(deployment, signature),
        MODEL_READY: ReadyResource(deployment, serves),
        INFER: InferResource(deployment, inference),
    }
    for route, resource in resources.items():
        for path in route.templates:
            app.add_route(path, resource)
