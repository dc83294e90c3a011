"""Requests for inferences, to ``/invocations`` and by the Open Inference Protocol: to a model or a script."""

from collections.abc import Callable
from typing import Any

import falcon
from msgspec.structs import replace

from tfs_proxy.data.open_inference.datatypes import triton_type
from tfs_proxy.data.open_inference.infer_codec import InferAnswer, InferCodec, write_answer
from tfs_proxy.data.open_inference.json_request import is_request, read_request
from tfs_proxy.data.registry import parse_media_type
from tfs_proxy.data.serving_json.requests import PREDICT
from tfs_proxy.observe.request_record import CONVERT, note_model, note_records, note_timeout, stage
from tfs_proxy.serving.bodies import Body
from tfs_proxy.serving.plane import DataPlane
from tfs_proxy.serving.script.caller import ScriptCaller
from tfs_proxy.serving.script.context import ScriptRequest
from tfs_proxy.serving.script.runner import ScriptReply
from tfs_proxy.values.attributes import parse_target
from tfs_proxy.values.deployment import OFF, Deployment
from tfs_proxy.values.errors import UnknownModel, UpstreamRefused
from tfs_proxy.values.memory import MemoryBudget
from tfs_proxy.values.signature import Target
from tfs_proxy.wire import media_types as media
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES, INFERENCE_HEADER_LENGTH
from tfs_proxy.worker.body import BodyReader
from tfs_proxy.worker.inference_resources import (
    ONLY_VERSION,
    is_triton_type,
    json_size,
    targeted_signature,
    write,
)


class ModelInvocations:
    """Requests directly to a model: the body is converted by its type and the model's signature."""

    method = "POST"

    def __init__(self, deployment: Deployment, bodies: BodyReader, plane: DataPlane) -> None:
        self._deployment = deployment
        self._bodies = bodies
        self._plane = plane

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer by the rules of docs/reference/sagemaker.md and docs/reference/aws-container.md."""
        is_triton = is_triton_type(req.content_type)
        with self._bodies.budget() as budget:
            target = _target(req, self._deployment)
            data = self._bodies.read(req, budget)
            # Triton's clients for SageMaker send JSON of the Open Inference Protocol, too.
            if is_triton or (
                self._deployment.doors.open_inference != OFF
                and target.method == PREDICT
                and parse_media_type(req.content_type).type == media.JSON
                and is_request(data, budget)
            ):
                answer = self._inferred(
                    data, json_size(req) if is_triton else None, target, target.model, budget
                )
                content_type = media.JSON if answer.json_size is None else triton_type(answer.json_size)
                write(req, resp, answer.body, content_type, None)
                return
            body = Body(data, req.content_type, budget)
            encoded = self._plane.answer(target, body, accept_of(req, self._deployment), self._plane.choose())
        resp.status = encoded.status
        resp.data = encoded.body
        resp.content_type = encoded.content_type

    def answer(self, req: falcon.Request, resp: falcon.Response, target: Target, name: str) -> None:
        """Answer in the protocol's types; ``name`` is the client's name of the model.

        Raises RequestError, among them UpstreamRefused with the model server's own error.
        """
        note_model(target.model, target.version if target.version is not None else target.label)
        with self._bodies.budget() as budget:
            body = self._bodies.read(req, budget)
            answer = self._inferred(body, json_size(req), target, name, budget)
        content_type = media.JSON if answer.json_size is None else media.BYTES
        write(req, resp, answer.body, content_type, answer.json_size)

    def _inferred(
        self, body: bytes, size: int | None, target: Target, name: str, budget: MemoryBudget
    ) -> InferAnswer:
        with stage(CONVERT):
            request = read_request(body, size, budget)
        note_timeout(request.timeout_seconds)
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


class ScriptInvocations:
    """Requests to an inference.py, which gets them all; one that is the model itself has one version, 1."""

    method = "POST"

    def __init__(self, deployment: Deployment, bodies: BodyReader, caller: ScriptCaller) -> None:
        self._deployment = deployment
        self._bodies = bodies
        self._caller = caller

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer by the rules of docs/reference/aws-container.md."""
        if is_triton_type(req.content_type):
            target = _target(req, self._deployment)
            self._infer(req, resp, target, target.model, triton_type)
            return
        with self._bodies.budget() as budget:
            body = self._bodies.read(req, budget)
            reply = self._caller.answer(self._request(req, body, budget))
        write_reply(resp, reply)

    def answer(self, req: falcon.Request, resp: falcon.Response, target: Target, name: str) -> None:
        """Answer in the protocol's types; ``name`` is the client's name of the model.

        Raises UnknownModel for another version of a script that is the model itself.
        """
        if self._deployment.script_model is not None:
            if target.label is not None or target.version not in {None, ONLY_VERSION}:
                raise UnknownModel(f"The script {target.model} has no version but {ONLY_VERSION}.")
            target = Target(target.model)
        codec = self._infer(req, resp, target, name)
        if codec.answer_json_size is not None:
            resp.set_header(INFERENCE_HEADER_LENGTH, str(codec.answer_json_size))

    def _infer(
        self,
        req: falcon.Request,
        resp: falcon.Response,
        target: Target,
        name: str,
        binary_type: Callable[[int], str] = lambda _: media.BYTES,
    ) -> InferCodec:
        note_model(target.model, target.version if target.version is not None else target.label)
        with self._bodies.budget() as budget:
            versions = self._deployment.models.get(target.model, (ONLY_VERSION,))
            version = str(target.version if target.version is not None else max(versions, default=""))
            codec = InferCodec(json_size(req), name, version, budget, binary_type)
            body = self._bodies.read(req, budget)
            note_timeout(codec.timeout_seconds(body))
            target = target if self._deployment.script_model else codec.targeted(body, target)
            request = self._request(
                req, body, budget, target=target, accept=req.get_header("Accept"), codec=codec
            )
            write_reply(resp, self._caller.answer(request))
        return codec

    def _request(
        self, req: falcon.Request, body: bytes, budget: MemoryBudget, **fields: Any
    ) -> ScriptRequest:
        if "target" not in fields:
            fields |= {"target": _target(req, self._deployment), "accept": accept_of(req, self._deployment)}
        return ScriptRequest(
            body=body,
            content_type=req.content_type,
            custom_attributes=req.get_header(CUSTOM_ATTRIBUTES),
            content_length=req.content_length,
            headers=lambda: req.headers,
            budget=budget,
            **fields,
        )


def write_reply(resp: falcon.Response, reply: ScriptReply) -> None:
    """Answer with a script's reply, in pieces if it is a stream."""
    resp.status = reply.status
    resp.content_type = reply.content_type
    for name, value in reply.headers.items():
        resp.append_header(name, value)
    if isinstance(reply.body, bytes):
        resp.data = reply.body
    else:
        resp.stream = reply.body
        # nginx would hold pieces back until its buffers are full.
        resp.set_header("X-Accel-Buffering", "no")


def _target(req: falcon.Request, deployment: Deployment) -> Target:
    """Target that a request names, also noted in its record; a script model has one. Raises BadInput."""
    if deployment.script_model is not None:
        note_model(deployment.default_model)
        return Target(deployment.default_model)
    target = parse_target(req.get_header(CUSTOM_ATTRIBUTES), deployment.default_model)
    served_name = deployment.served_name(target.model)
    if served_name != target.model:
        target = replace(target, model=served_name)
    note_model(target.model, target.version if target.version is not None else target.label)
    return target


def accept_of(req: falcon.Request, deployment: Deployment) -> str | None:
    """Accept of the client, or the default for clients without one (docs/reference/sagemaker.md)."""
    accept: str | None = req.get_header("Accept")
    says_nothing = accept is None or accept.strip() in {"", "*", "*/*"}
    return deployment.default_accept or accept if says_nothing else accept
