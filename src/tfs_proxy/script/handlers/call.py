"""One request through the user's script: data and context in, the model server between, the answer out.

If AWS's two versions disagree (docs/reference/aws-container.md), this holds: an error of the
model server reaches
``output_handler``, as in the old one (the new one answers by itself), and what the script makes of it
goes out with the model server's status (the old one: 200, or 500 if the script raised); if it raises
or returns nothing usable, the model server's words come first. Otherwise an
exception of the script's is a 500 with its type and text (both: its text); an error with a status of
its own, ours or falcon's, keeps it, as in the new one, but in the shape ``{"error": text}``.
"""

import io
from collections.abc import Mapping
from typing import Any

from tfs_proxy.batch import Batch
from tfs_proxy.dataplane.bodies import FORMS, Body, as_batch
from tfs_proxy.deployment import Instance
from tfs_proxy.errors import BadInput, ScriptFailure, ScriptLoadError, UpstreamRefused
from tfs_proxy.script.deadline import DeadlineWatch
from tfs_proxy.script.handlers.context import Context, ScriptRequest
from tfs_proxy.script.handlers.model_client import PREDICT, WorkerContext, WorkerModels, retargeted
from tfs_proxy.script.handlers.model_response import ModelResponse
from tfs_proxy.script.load import Script
from tfs_proxy.script.returned import ScriptReply, script_reply
from tfs_proxy.script.runner import ScriptRunner, ServerRefusal
from tfs_proxy.script.stream import encoded
from tfs_proxy.script.values import STATUSES, Request
from tfs_proxy.signature import Target
from tfs_proxy.upstream.interface import OK, ModelAnswer
from tfs_proxy.wire.error_body import error_text
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES

INPUT, OUTPUT = "input_handler", "output_handler"
EXPECTED = f"it must return the model server's request as str or bytes, {FORMS}, or a tfs_proxy.Request"


class ScriptCaller:
    """A loaded script with what it needs to answer requests; one per worker, used by all its threads.

    ``own_errors`` are exceptions that a script may raise to be answered as they are. ``watch`` ends
    calls that are over their deadline; without it there is none.
    """

    def __init__(
        self,
        script: Script,
        worker: WorkerModels,
        own_errors: tuple[type[Exception], ...] = (),
        watch: DeadlineWatch | None = None,
    ) -> None:
        self._script = script
        self._worker = worker
        self._runner = ScriptRunner(script.path, own_errors, watch)

    def begin(self) -> None:
        """Call the script's ``init(context)``; raises ScriptLoadError if that fails."""
        self._runner.begun = True
        if self._script.init is None:
            return
        try:
            self._runner.call("init", self._script.init, WorkerContext(self._worker))
        except Exception as error:
            raise ScriptLoadError(f"{self._script.path}: init(context) failed: {error}") from error

    def answer(self, request: ScriptRequest) -> ScriptReply:
        """Run the script: ``handler`` if there is one, else both halves around the model server.

        Raises HTTPError and ``own_errors`` as the script raised them, ScriptFailure for anything else
        that it raises or returns, ScriptTimeout beyond the deadline, and UpstreamError if the model
        server can't be reached.
        """
        with self._runner.watch.call():
            return self._answer(request)

    def _answer(self, request: ScriptRequest) -> ScriptReply:
        if self._script.description is not None and request.codec is None:
            self._script.description.refuse_unfit(request.body, request.content_type)
        instance = self._worker.plane.choose()
        context = Context(request, instance, self._worker)
        if self._script.handler is not None:
            data = io.BytesIO(request.body)
            returned = self._runner.call("handler", self._script.handler, data, context)
            reply = script_reply(_encoded(returned, request), "handler", request.accept, OK, self._runner)
        else:
            reply = self._halves(request, context, instance)
        return reply.with_header(CUSTOM_ATTRIBUTES, context.reply_attributes)

    def close(self) -> None:
        """Call the script's ``close()``, then close what requests opened; idempotent."""
        self._runner.close(self._script.close)
        self._worker.channels.close()

    def _halves(self, request: ScriptRequest, context: Context, instance: Instance) -> ScriptReply:
        """Around the model server: the script's halves, the default conversion for one that is missing."""
        plane = self._worker.plane
        target, model_request = self._model_request(request, context)
        if self._script.output_handler is None and request.codec is not None:
            outcome = plane.call(target, model_request, instance)
            if not outcome.answer.ok:
                raise UpstreamRefused(outcome.answer.status, outcome.answer.body)
            signature = plane.signature(outcome.signature_target)
            return ScriptReply(*request.codec.encode(outcome.answer.outputs(signature), signature))
        if self._script.output_handler is None:
            answer = plane.answer(target, model_request, request.accept, instance)
            return ScriptReply(answer.body, answer.content_type, answer.status)
        outcome = plane.call(target, model_request, instance)
        response = ModelResponse(outcome.answer, lambda: plane.signature(outcome.signature_target))
        runner = self._runner.after(lambda: _refusal(response, outcome.answer))
        returned = _encoded(runner.call(OUTPUT, self._script.output_handler, response, context), request)
        return script_reply(returned, OUTPUT, request.accept, response.status_code, runner)

    def _model_request(self, request: ScriptRequest, context: Context) -> tuple[Target, Body | bytes | Batch]:
        """What the model server is asked: the client's body, or what ``input_handler`` makes of it."""
        if self._script.input_handler is None and request.codec is not None:
            signature = self._worker.plane.signature(request.target)
            return request.target, request.codec.batch(request.body, signature)
        if self._script.input_handler is None:
            return request.target, Body(request.body, request.content_type, request.budget)
        data = io.BytesIO(request.body)
        returned = self._runner.call(INPUT, self._script.input_handler, data, context)
        try:
            return self._converted(request.target, returned)
        except ScriptFailure as error:
            raise self._runner.complain(error) from None

    def _converted(self, target: Target, returned: Any) -> tuple[Target, bytes | Batch]:
        """Read what ``input_handler`` returned; raises ScriptFailure if it is not a request."""
        inputs = returned
        if isinstance(returned, Request):
            inputs = returned.inputs
            target = retargeted(
                target,
                returned.model_name,
                returned.version,
                returned.label,
                returned.signature,
                target.method,
            )
        if not isinstance(inputs, Mapping) and not hasattr(inputs, "__array__"):
            return target, encoded(inputs, INPUT, EXPECTED)
        if target.method != PREDICT:
            raise BadInput(
                f"tfs-method={target.method} can't be answered: the script returns tensors, which are for "
                f"{PREDICT}. Send tfs-method={PREDICT}, or no tfs-method."
            )
        return target, as_batch(inputs, self._worker.plane.signature(target), INPUT)


def _refusal(response: ModelResponse, answer: ModelAnswer) -> ServerRefusal | None:
    """The error of the model server that ``response`` is, unless the script has given it another status."""
    if response.status_code not in STATUSES:
        return None
    return ServerRefusal(response.status_code, error_text(answer.body) or "")


def _encoded(returned: Any, request: ScriptRequest) -> Any:
    """Arrays by output name as a body of the Open Inference Protocol; all else as it is."""
    if request.codec is None or not isinstance(returned, Mapping):
        return returned
    return request.codec.encode(returned)
