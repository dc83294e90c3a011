"""Resources of the Open Inference Protocol for an archive's models, and its JSON with binary data behind."""

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol

import falcon
import msgspec
from msgspec.structs import replace

from tfs_proxy.data.open_inference.datatypes import JSON_SIZE, TRITON_TYPE, model_metadata
from tfs_proxy.data.open_inference.infer_request import InferRequest
from tfs_proxy.observe.logs.reasons import note_refusal
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.errors import BadInput, RequestError, UnknownModel, from_client
from tfs_proxy.values.names import HIGHEST_VERSION, LABEL, VERSION, printable
from tfs_proxy.values.signature import Signature, Target
from tfs_proxy.wire.header_names import INFERENCE_HEADER_LENGTH
from tfs_proxy.wire.media_types import parse
from tfs_proxy.wire.packed_body import packed
from tfs_proxy.wire.routes import INFER, METADATA, MODEL_READY, PING
from tfs_proxy.worker.serving_api import AskControlApi

_MOST_DIGITS = 18


def json_size(req: falcon.Request) -> int | None:
    """Number of bytes of JSON, by the header or by Triton's media type; None means the whole body.

    Raises BadInput if it is not a number.
    """
    header = req.get_header(INFERENCE_HEADER_LENGTH)
    if header is not None:
        return _size(header, INFERENCE_HEADER_LENGTH)
    content_type = req.content_type
    return None if content_type is None or not is_triton_type(content_type) else json_size_in(content_type)


def is_triton_type(content_type: str | None) -> bool:
    """True if a Content-Type is Triton's for SageMaker."""
    return content_type is not None and content_type.lower().startswith(TRITON_TYPE)


def json_size_in(content_type: str) -> int | None:
    """The JSON's size in Triton's media type. Raises BadInput if it is not a number."""
    try:
        size = parse(content_type).parameters.get(JSON_SIZE)
    except RequestError as error:
        raise BadInput(from_client(error)) from None
    return None if size is None else _size(size, JSON_SIZE)


def write(
    req: falcon.Request, resp: falcon.Response, body: bytes, content_type: str, size: int | None
) -> None:
    """Answer with a body of which ``size`` bytes are JSON, compressed if the client accepts that."""
    resp.data, encoding = packed(body, req.get_header("Accept-Encoding"))
    resp.content_type = content_type
    if encoding is not None:
        resp.set_header("Content-Encoding", encoding)
    if size is not None:
        resp.set_header(INFERENCE_HEADER_LENGTH, str(size))


def _size(text: str, subject: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise BadInput(f"{subject} must be a whole number of bytes, not {from_client(text[:40])}.")
    return int(text)


ONLY_VERSION = 1
"""Version of a script model."""

_SHOWN_CHARACTERS = 100


def target_of(deployment: Deployment, model: str, version: str | None) -> Target:
    """Target of a path: its model, and its version or a version label. Raises UnknownModel for others."""
    served_name = deployment.served_name(model)
    script_model = None if deployment.script_model is None else deployment.default_model
    if served_name not in deployment.models and served_name != script_model:
        raise UnknownModel(f"There is no model {printable(model)[:_SHOWN_CHARACTERS]}.")
    if version is None:
        return Target(served_name)
    if re.fullmatch(VERSION, version, re.ASCII) and int(version) <= HIGHEST_VERSION:
        return Target(served_name, version=int(version))
    if re.fullmatch(LABEL, version, re.ASCII):
        return Target(served_name, label=version)
    raise UnknownModel(f"{printable(version)[:_SHOWN_CHARACTERS]} is neither a version nor a version label.")


def targeted_signature(target: Target, request: InferRequest) -> Target:
    """Add the signature that a request names to the target. Raises BadInput if that is not a string."""
    return target if request.signature is None else replace(target, signature=request.signature)


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
    """Resource ``GET /v2/models/M[/versions/V]/ready``; without ``serves`` it is a script, and there.

    ``ask`` reaches the supervisor if the script tells its health.
    """

    method = "GET"

    def __init__(self, deployment: Deployment, serves: Serves | None, ask: AskControlApi | None) -> None:
        self._deployment = deployment
        self._serves = serves
        self._ask = ask

    def on_get(
        self, _req: falcon.Request, resp: falcon.Response, model: str, version: str | None = None
    ) -> None:
        """Answer 503 if it is not loaded, or the script not healthy. Raises UnknownModel."""
        target = target_of(self._deployment, model, version)
        versions = self._deployment.models.get(target.model, (ONLY_VERSION,))
        known = target.label is None and target.version in {None, *versions}
        ready = known if self._serves is None else self._serves(target)
        if not ready and not known and (self._serves is None or self._serves(Target(target.model))):
            raise UnknownModel(f"The model {model} has no version {printable(version or '')}.")
        if ready and self._ask is not None:
            ready = self._ask("GET", PING.path, b"", {}).status == HTTPStatus.OK
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
    ask: AskControlApi | None,
) -> None:
    resources = {
        METADATA: MetadataResource(deployment, signature),
        MODEL_READY: ReadyResource(deployment, serves, ask),
        INFER: InferResource(deployment, inference),
    }
    for route, resource in resources.items():
        for path in route.templates:
            app.add_route(path, resource)
