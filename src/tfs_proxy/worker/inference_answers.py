"""Inferences of the Open Inference Protocol: by the data plane, with tensors all the way, or by a script."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import falcon

from tfs_proxy.data.open_inference.datatypes import triton_type
from tfs_proxy.data.open_inference.infer_codec import InferAnswer, InferCodec, version_text, write_answer
from tfs_proxy.data.open_inference.json_request import read_request
from tfs_proxy.observe.request_record import CONVERT, note_model, note_records, stage
from tfs_proxy.serving.plane import DataPlane
from tfs_proxy.serving.script.context import ScriptRequest
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.errors import UnknownModel, UpstreamRefused
from tfs_proxy.values.memory import MemoryBudget
from tfs_proxy.values.signature import Target
from tfs_proxy.wire import media_types as media
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES, INFERENCE_HEADER_LENGTH
from tfs_proxy.worker.body import BodyReader
from tfs_proxy.worker.inference_resources import ONLY_VERSION, json_size, targeted_signature, write
from tfs_proxy.worker.sessions import session_of


class ModelInference:
    def __init__(self, bodies: BodyReader, plane: DataPlane) -> None:
        self._bodies = bodies
        self._plane = plane

    def answer(self, req: falcon.Request, resp: falcon.Response, target: Target, name: str) -> None:
        """Answer in the protocol's types; ``name`` is the client's name of the model."""
        answer = self._answer(req, target, name)
        content_type = media.JSON if answer.json_size is None else media.BYTES
        write(req, resp, answer.body, content_type, answer.json_size)

    def answer_invocation(self, req: falcon.Request, resp: falcon.Response, target: Target) -> None:
        """Answer a request to /invocations, in Triton's type for SageMaker."""
        _write_invocation(req, resp, self._answer(req, target, target.model))

    def answer_body(
        self, req: falcon.Request, resp: falcon.Response, target: Target, body: bytes, budget: MemoryBudget
    ) -> None:
        """Answer a request to /invocations whose JSON has been read."""
        _write_invocation(req, resp, self._inferred(body, None, target, target.model, budget))

    def _answer(self, req: falcon.Request, target: Target, name: str) -> InferAnswer:
        """Infer. Raises RequestError, among them UpstreamRefused with the model server's own error."""
        note_model(target.model, target.version if target.version is not None else target.label)
        with self._bodies.budget(req) as budget:
            body = self._bodies.read(req, budget)
            return self._inferred(body, json_size(req), target, name, budget)

    def _inferred(
        self, body: bytes, size: int | None, target: Target, name: str, budget: MemoryBudget
    ) -> InferAnswer:
        with stage(CONVERT):
            request = read_request(body, size, budget)
        target = targeted_signature(target, request)
        signature = self._plane.signature(target)
        with stage(CONVERT):
            batch = request.batch(signature)
        note_records(batch.records)
        answer = self._plane.call(target, batch, self._plane.choose()).answer
        if not answer.ok:
            raise UpstreamRefused(answer.status, answer.body)
        version = answer.version if answer.version is not None else target.version
        with stage(CONVERT):
            outputs = answer.outputs(signature)
            return write_answer(request, name, "" if version is None else str(version), outputs, signature)


def _write_invocation(req: falcon.Request, resp: falcon.Response, answer: InferAnswer) -> None:
    content_type = media.JSON if answer.json_size is None else triton_type(answer.json_size)
    write(req, resp, answer.body, content_type, None)


if TYPE_CHECKING:
    from tfs_proxy.serving.script.runner import ScriptReply


class Caller(Protocol):
    """Loaded script: its handlers, or one that is the model itself."""

    def begin(self) -> None:
        """Run the script's ``init``, or load its model. Raises ScriptLoadError."""

    def close(self) -> None:
        """Run the script's ``close``; idempotent."""

    def answer(self, request: ScriptRequest) -> "ScriptReply":
        """Run the script on one request. Raises RequestError, and what a script may raise as it is."""


class ScriptInference:
    """Answers inferences for a target by a script; one that is the model itself has one version, 1."""

    def __init__(self, deployment: Deployment, bodies: BodyReader, caller: Caller) -> None:
        self._deployment = deployment
        self._bodies = bodies
        self._caller = caller

    def answer(self, req: falcon.Request, resp: falcon.Response, target: Target, name: str) -> None:
        """Answer in the protocol's types; ``name`` is the client's name of the model.

        Raises UnknownModel for another version of a script that is the model itself.
        """
        if self._deployment.script_model is not None:
            if target.label is not None or target.version not in {None, ONLY_VERSION}:
                raise UnknownModel(f"The script {target.model} has no version but {ONLY_VERSION}.")
            target = Target(target.model)
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
            versions = self._deployment.models.get(target.model, (ONLY_VERSION,))
            version = version_text(target.version, versions)
            codec = InferCodec(json_size(req), name, version, budget, binary_type)
            body = self._bodies.read(req, budget)
            request = ScriptRequest(
                target=target if self._deployment.script_model else codec.targeted(body, target),
                body=body,
                content_type=req.content_type,
                accept=req.get_header("Accept"),
                custom_attributes=req.get_header(CUSTOM_ATTRIBUTES),
                content_length=req.content_length,
                headers=lambda: req.headers,
                budget=budget,
                codec=codec,
                session=session_of(req),
            )
            write_reply(resp, self._caller.answer(request))
        return codec


def write_reply(resp: falcon.Response, reply: "ScriptReply") -> None:
    """Answer with a script's reply, in pieces if it is a stream."""
    resp.status, resp.content_type = reply.status, reply.content_type
    for name, value in reply.headers.items():
        resp.append_header(name, value)
    if isinstance(reply.body, bytes):
        resp.data = reply.body
    else:
        resp.stream = reply.body
        # nginx would hold pieces back until its buffers are full.
        resp.set_header("X-Accel-Buffering", "no")
