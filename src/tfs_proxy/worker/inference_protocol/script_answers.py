"""Inferences by a script: it gets the body, and its result is written for the protocol."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import falcon

from tfs_proxy.data import media_types as media
from tfs_proxy.data.open_inference.datatypes import triton_type
from tfs_proxy.data.open_inference.infer_codec import InferCodec, version_text
from tfs_proxy.observe.request_record import note_model
from tfs_proxy.serving.script.context import ScriptRequest
from tfs_proxy.serving.script.script_model import ScriptModelRequest
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.errors import UnknownModel
from tfs_proxy.values.signature import Target
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES, INFERENCE_HEADER_LENGTH
from tfs_proxy.worker.body import BodyReader
from tfs_proxy.worker.inference_protocol.framing import ONLY_VERSION, json_size
from tfs_proxy.worker.script_reply import write_reply

if TYPE_CHECKING:
    from tfs_proxy.serving.script.handlers import ScriptCaller
    from tfs_proxy.serving.script.script_model import ScriptModelCaller


class ScriptInference:
    """Answers inferences for a target by the handlers of a script."""

    def __init__(self, deployment: Deployment, bodies: BodyReader, caller: "ScriptCaller") -> None:
        self._deployment = deployment
        self._bodies = bodies
        self._caller = caller

    def answer(self, req: falcon.Request, resp: falcon.Response, target: Target, name: str) -> None:
        """Answer in the protocol's types; ``name`` is the client's name of the model."""
        codec = self._answer(req, resp, target, name)
        if codec.answer_json_size is not None:
            resp.set_header(INFERENCE_HEADER_LENGTH, str(codec.answer_json_size))

    def answer_invocation(self, req: falcon.Request, resp: falcon.Response, target: Target) -> None:
        """Answer a request to /invocations, in Triton's type for SageMaker."""
        self._answer(req, resp, target, target.model, triton_type)

    def _answer(
        self,
        req: falcon.Request,
        resp: falcon.Response,
        target: Target,
        name: str,
        binary_type: Callable[[int], str] = lambda _: media.BYTES,
    ) -> InferCodec:
        note_model(target.model, target.version if target.version is not None else target.label)
        with self._bodies.budget(req) as budget:
            version = version_text(target.version, self._deployment.models.get(target.model, ()))
            codec = InferCodec(json_size(req), name, version, budget, binary_type)
            body = self._bodies.read(req, budget)
            request = ScriptRequest(
                target=codec.targeted(body, target),
                body=body,
                content_type=req.content_type,
                accept=req.get_header("Accept"),
                custom_attributes=req.get_header(CUSTOM_ATTRIBUTES),
                content_length=req.content_length,
                headers=lambda: req.headers,
                budget=budget,
                codec=codec,
            )
            write_reply(resp, self._caller.answer(request))
        return codec


class ScriptModelInference:
    """Answers inferences by a script model, which has one version, 1."""

    def __init__(self, deployment: Deployment, bodies: BodyReader, caller: "ScriptModelCaller") -> None:
        self._deployment = deployment
        self._bodies = bodies
        self._caller = caller

    def answer(self, req: falcon.Request, resp: falcon.Response, target: Target, name: str) -> None:
        """Answer in the protocol's types. Raises UnknownModel for another version."""
        if target.label is not None or target.version not in {None, ONLY_VERSION}:
            raise UnknownModel(f"The script {target.model} has no version but {ONLY_VERSION}.")
        codec = self._answer(req, resp, name)
        if codec.answer_json_size is not None:
            resp.set_header(INFERENCE_HEADER_LENGTH, str(codec.answer_json_size))

    def answer_invocation(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer a request to /invocations, in Triton's type for SageMaker."""
        self._answer(req, resp, self._deployment.default_model, triton_type)

    def _answer(
        self,
        req: falcon.Request,
        resp: falcon.Response,
        name: str,
        binary_type: Callable[[int], str] = lambda _: media.BYTES,
    ) -> InferCodec:
        note_model(self._deployment.default_model)
        with self._bodies.budget(req) as budget:
            codec = InferCodec(json_size(req), name, str(ONLY_VERSION), budget, binary_type)
            body, accept = self._bodies.read(req, budget), req.get_header("Accept")
            request = ScriptModelRequest(body, req.content_type, accept, lambda: req.headers, budget, codec)
            write_reply(resp, self._caller.answer(request))
        return codec
