"""Resource POST /invocations: passes headers and body to the script, or to the default conversion."""

from typing import BinaryIO

import falcon
from msgspec.structs import replace

from tfs_proxy.data.open_inference.json_request import is_request
from tfs_proxy.data.registry import parse_media_type
from tfs_proxy.data.serving_json.requests import PREDICT
from tfs_proxy.observe.request_record import note_model
from tfs_proxy.serving.bodies import Body
from tfs_proxy.serving.plane import DataPlane
from tfs_proxy.serving.script.context import ScriptRequest
from tfs_proxy.values.attributes import parse_target
from tfs_proxy.values.deployment import OFF, Deployment
from tfs_proxy.values.memory import MemoryBudget
from tfs_proxy.values.signature import Target
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES
from tfs_proxy.wire.media_types import JSON
from tfs_proxy.worker.body import BodyReader, file_of_form
from tfs_proxy.worker.inference_answers import Caller, ModelInference, ScriptInference, write_reply
from tfs_proxy.worker.inference_resources import is_triton_type
from tfs_proxy.worker.sessions import session_of


class ModelInvocations:
    """Requests directly to a model: the body is converted by its type and the model's signature."""

    method = "POST"

    def __init__(
        self, deployment: Deployment, bodies: BodyReader, plane: DataPlane, inference: ModelInference
    ) -> None:
        self._deployment = deployment
        self._bodies = bodies
        self._plane = plane
        self._inference = inference

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer by the rules of docs/reference/sagemaker.md and docs/reference/aws-container.md."""
        if is_triton_type(req.content_type):
            target = _target(req.get_header(CUSTOM_ATTRIBUTES), self._deployment)
            self._inference.answer_invocation(req, resp, target)
            return
        with self._bodies.budget(req) as budget:
            target = _target(req.get_header(CUSTOM_ATTRIBUTES), self._deployment)
            data = self._bodies.read(req, budget)
            if (
                self._deployment.doors.open_inference != OFF
                and target.method == PREDICT
                and parse_media_type(req.content_type).type == JSON
                and is_request(data, budget)
            ):
                self._inference.answer_body(req, resp, target, data, budget)
                return
            body = Body(*file_of_form(data, req.content_type), budget)
            answer = self._plane.answer(target, body, accept_of(req, self._deployment), self._plane.choose())
        resp.status, resp.data, resp.content_type = answer.status, answer.body, answer.content_type


class ScriptInvocations:
    """Requests to an inference.py, which gets them all."""

    method = "POST"

    def __init__(
        self, deployment: Deployment, bodies: BodyReader, caller: Caller, inference: ScriptInference
    ) -> None:
        self._deployment = deployment
        self._bodies = bodies
        self._caller = caller
        self._inference = inference

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer by the rules of docs/reference/aws-container.md."""
        if is_triton_type(req.content_type):
            target = _target(req.get_header(CUSTOM_ATTRIBUTES), self._deployment)
            self._inference.answer_invocation(req, resp, target)
            return
        with self._bodies.budget(req) as budget:
            body = self._bodies.read(req, budget)
            reply = self._caller.answer(self._request(req, body, budget))
        write_reply(resp, reply)

    def _request(
        self, req: falcon.Request, body: bytes, budget: MemoryBudget, file: BinaryIO | None = None
    ) -> ScriptRequest:
        attributes = req.get_header(CUSTOM_ATTRIBUTES)
        return ScriptRequest(
            target=_target(attributes, self._deployment),
            body=body,
            content_type=req.content_type,
            accept=accept_of(req, self._deployment),
            custom_attributes=attributes,
            content_length=req.content_length,
            headers=lambda: req.headers,
            budget=budget,
            session=session_of(req),
            file=file,
        )


def _target(attributes: str | None, deployment: Deployment) -> Target:
    """Target that a request names, also noted in its record; a script model has one. Raises BadInput."""
    if deployment.script_model is not None:
        note_model(deployment.default_model)
        return Target(deployment.default_model)
    target = parse_target(attributes, deployment.default_model)
    served_name = deployment.served_name(target.model)
    if served_name != target.model:
        target = replace(target, model=served_name)
    note_model(target.model, target.version if target.version is not None else target.label)
    return target


def accept_of(req: falcon.Request, deployment: Deployment) -> str | None:
    """Accept of the client, or the default for clients without one (docs/reference/sagemaker.md)."""
    accept: str | None = req.get_header("Accept")
    says_nothing = accept is None or accept.strip() in {"", "*/*"}
    return deployment.default_accept or accept if says_nothing else accept
