"""Inferences by the data plane: tensors stay tensors from the request to the answer."""

import falcon

from tfs_proxy.data import media_types as media
from tfs_proxy.data.open_inference.datatypes import triton_type
from tfs_proxy.data.open_inference.infer_codec import InferAnswer, write_answer
from tfs_proxy.data.open_inference.json_request import read_request
from tfs_proxy.observe.request_record import CONVERT, note_model, note_records, stage
from tfs_proxy.serving.plane import DataPlane
from tfs_proxy.values.errors import UpstreamRefused
from tfs_proxy.values.memory import MemoryBudget
from tfs_proxy.values.signature import Target
from tfs_proxy.worker.body import BodyReader
from tfs_proxy.worker.inference_protocol.framing import json_size, targeted_signature, write


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
            return write_answer(request, name, _text(version), outputs, signature)


def _write_invocation(req: falcon.Request, resp: falcon.Response, answer: InferAnswer) -> None:
    content_type = media.JSON if answer.json_size is None else triton_type(answer.json_size)
    write(req, resp, answer.body, content_type, None)


def _text(version: int | None) -> str:
    return "" if version is None else str(version)
