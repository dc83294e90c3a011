"""Calls of the script's handlers, and the model server's answer for output_handler."""

import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from http import HTTPStatus
from http.client import responses
from typing import TYPE_CHECKING, Any, Self

import numpy.typing as npt

from tfs_proxy.serving.bodies import FORMS, Body, as_batch
from tfs_proxy.serving.plane import DataPlane
from tfs_proxy.serving.script.context import (
    Context,
    ModelClient,
    ScriptRequest,
    WorkerContext,
    WorkerModels,
)
from tfs_proxy.serving.script.load import Script
from tfs_proxy.serving.script.runner import ScriptReply, ScriptRunner, ServerRefusal, encoded, script_reply
from tfs_proxy.serving.script.values import PREDICT, STATUSES, HeaderMap, Request, retargeted
from tfs_proxy.serving.upstream.interface import ModelAnswer
from tfs_proxy.values.batch import Batch
from tfs_proxy.values.deployment import Deployment, Instance
from tfs_proxy.values.errors import (
    BadInput,
    ScriptFailure,
    ScriptLoadError,
    UpstreamRefused,
)
from tfs_proxy.values.signature import Signature, Target
from tfs_proxy.wire.error_body import error_text
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES

if TYPE_CHECKING:
    from requests import Response
else:
    # Importing requests takes 50 ms and 5 MB, and most scripts look at little of a response.
    Response = object

_ITER_BYTES = 128
"""Bytes that requests reads at a time if a response is iterated over."""


class ModelResponse(Response):
    """Substitute for a ``requests.Response``, over a `ModelAnswer` whose body is made when it is first read.

    ``isinstance`` takes it for one. Rare attributes come from a real one, made when the first of them is
    read. ``outputs`` has the tensors by output name, read once; JSON is neither written nor parsed for
    them if the model server gave tensors.
    """

    def __init__(self, answer: ModelAnswer, signature: Callable[[], Signature]) -> None:
        self._answer = answer
        self._signature = signature
        self._is_read = False
        self._status: int | None = None
        self._reason: str | None = None
        self._outputs: dict[str, npt.NDArray[Any]] | None = None
        self.url = answer.url
        self.encoding = "utf-8"

    if not TYPE_CHECKING:

        @property
        def __class__(self) -> type:
            """Class for ``isinstance``: nobody can ask for a class of requests before it is imported."""
            module = sys.modules.get("requests")
            return getattr(module, "Response", ModelResponse)

        def __getattr__(self, name: str) -> Any:
            """Read other attributes from a ``requests.Response``."""
            if name.startswith("__"):
                raise AttributeError(name)
            return getattr(self._plain(), name)

    def _plain(self) -> Response:
        """Make a ``requests.Response`` with all of this one; the body is read."""
        import requests
        from requests.structures import CaseInsensitiveDict

        plain = requests.Response()
        plain._content = self.content  # noqa: SLF001 - as requests' own adapters make one
        plain._content_consumed = True  # type: ignore[attr-defined]  # noqa: SLF001
        plain.status_code = self.status_code
        plain.reason = self.reason
        plain.headers = CaseInsensitiveDict(self.headers)
        plain.url = self.url
        plain.encoding = self.encoding
        plain.raw = self.raw
        return plain

    @cached_property
    def headers(self) -> HeaderMap:  # type: ignore[override]
        """Headers of the model server."""
        return HeaderMap(self._answer.headers)

    @property
    def status_code(self) -> int:
        """Status of the model server.

        Tensors may have no form in TF Serving's JSON: that is known, and the status 400, when the
        body has been asked for. A script may set another.
        """
        if self._status is not None:
            return self._status
        return int(self._answer.status if self._is_read or not self._answer.ok else HTTPStatus.OK)

    @status_code.setter
    def status_code(self, status: int) -> None:
        self._status = status

    @property
    def ok(self) -> bool:
        """True if the status is that of a success."""
        return self.status_code < HTTPStatus.BAD_REQUEST

    @property
    def reason(self) -> str:
        """Reason phrase of the status, or the one that a script has set."""
        return responses.get(self.status_code, "") if self._reason is None else self._reason

    @reason.setter
    def reason(self, reason: str) -> None:
        self._reason = reason

    def raise_for_status(self) -> None:
        """Raise requests' HTTPError if the status is that of an error."""
        if not self.ok:
            self._plain().raise_for_status()

    @property
    def outputs(self) -> dict[str, npt.NDArray[Any]]:
        """Arrays by output name; strings are object arrays of ``bytes``.

        Raises UpstreamRefused if the model server answered with an error: left uncaught, it goes
        out as it is, with its status.
        """
        if self._outputs is None:
            if not self._answer.ok:
                raise UpstreamRefused(self._answer.status, self._answer.body)
            self._outputs = dict(self._answer.outputs(self._signature()))
        return self._outputs

    @property
    def content(self) -> bytes:
        """Body in TF Serving's JSON."""
        self._is_read = True
        return self._answer.body

    @property
    def text(self) -> str:
        """Body as text in ``encoding``; requests guesses if a script has set None or an unknown one."""
        try:
            return self.content.decode(self.encoding, "replace")  # type: ignore[arg-type]  # None is a TypeError
        except (LookupError, TypeError):
            return self._plain().text

    def json(self, **options: Any) -> Any:
        """Parse the body; raises requests' JSONDecodeError if it is not JSON."""
        try:
            return json.loads(self.text, **options)
        except ValueError:
            return self._plain().json(**options)

    @cached_property
    def raw(self) -> Any:  # type: ignore[override]
        """Body as a file."""
        return io.BytesIO(self._answer.body)

    def __bool__(self) -> bool:
        return self.ok

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._plain().iter_content(_ITER_BYTES))

    def __repr__(self) -> str:
        return f"<Response [{self.status_code}]>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


INPUT = "input_handler"
OUTPUT = "output_handler"
EXPECTED = f"it must return the model server's request as str or bytes, {FORMS}, or a tfs_proxy.Request"


class Handlers:
    """Handlers of a loaded script, with the parts that they need."""

    def __init__(
        self, script: Script, runner: ScriptRunner, plane: DataPlane, deployment: Deployment
    ) -> None:
        self.script = script
        self.runner = runner
        self._worker = WorkerModels(plane, deployment)

    def begin(self) -> None:
        """Call the script's ``init(context)``; raises ScriptLoadError if that fails."""
        if self.script.init is None:
            return
        try:
            self.runner.call("init", self.script.init, WorkerContext(self._worker))
        except Exception as error:
            raise ScriptLoadError(f"{self.script.path}: init(context) failed: {error}") from error

    def reply(self, request: ScriptRequest) -> ScriptReply:
        """Call ``handler`` if there is one, else both halves before and after the model server.

        Raises UpstreamError if the model server can't be reached.
        """
        instance = self._worker.plane.choose()
        context = Context(request, instance, self._worker)
        if self.script.handler is not None:
            data = self._data("handler", request)
            returned = self.runner.call("handler", self.script.handler, data, context)
            reply = script_reply(
                returned, "handler", request.accept, HTTPStatus.OK, self.runner, request.codec
            )
        else:
            reply = self._halves(request, context, instance)
        return reply.with_header(CUSTOM_ATTRIBUTES, context.reply_attributes)

    def health_context(self) -> ModelClient:
        """Make a context of ``health``, with the default model."""
        return ModelClient(self._worker, Target(self._worker.deployment.default_model))

    def end(self) -> None:
        """Close what requests opened; idempotent."""
        self._worker.channels.close()

    def _data(self, function: str, request: ScriptRequest) -> object:
        """Body for a function: an object of its declared type, or a file."""
        if self.script.body is None:
            return request.file or io.BytesIO(request.body)
        return self.runner.call(function, self.script.body.read, request)

    def _halves(self, request: ScriptRequest, context: Context, instance: Instance) -> ScriptReply:
        """Ask the model server between the script's halves; the default conversion replaces a missing one."""
        plane = self._worker.plane
        target, model_request = self._model_request(request, context)
        if self.script.output_handler is None and request.codec is not None:
            outcome = plane.call(target, model_request, instance)
            if not outcome.answer.ok:
                raise UpstreamRefused(outcome.answer.status, outcome.answer.body)
            signature = outcome.signature()
            return ScriptReply(*request.codec.encode(outcome.answer.outputs(signature), signature))
        if self.script.output_handler is None:
            answer = plane.answer(target, model_request, request.accept, instance)
            return ScriptReply(answer.body, answer.content_type, answer.status)
        outcome = plane.call(target, model_request, instance)
        response = ModelResponse(outcome.answer, outcome.signature)
        runner = self.runner.after(lambda: _refusal(response, outcome.answer))
        returned = runner.call(OUTPUT, self.script.output_handler, response, context)
        return script_reply(returned, OUTPUT, request.accept, response.status_code, runner, request.codec)

    def _model_request(self, request: ScriptRequest, context: Context) -> tuple[Target, Body | bytes | Batch]:
        """Make the model server's request: the client's body, or the output of ``input_handler``."""
        if self.script.input_handler is None and request.codec is not None:
            signature = self._worker.plane.signature(request.target)
            return request.target, request.codec.batch(request.body, signature)
        if self.script.input_handler is None:
            return request.target, Body(request.body, request.content_type, request.budget)
        data = self._data(INPUT, request)
        returned = self.runner.call(INPUT, self.script.input_handler, data, context)
        try:
            return self._converted(request.target, returned)
        except ScriptFailure as error:
            raise self.runner.complain(error) from None

    def _converted(self, target: Target, returned: Any) -> tuple[Target, bytes | Batch]:
        """Read the output of ``input_handler``; raises ScriptFailure if it is not a request."""
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
            # AWS's container passes a file on, often the body itself, without a look at it.
            text = inputs.read() if hasattr(inputs, "read") else inputs
            return target, encoded(text, INPUT, EXPECTED)
        if target.method != PREDICT:
            raise BadInput(
                f"tfs-method={target.method} can't be answered: the script returns tensors, which are for "
                f"{PREDICT}. Send tfs-method={PREDICT}, or no tfs-method."
            )
        return target, as_batch(inputs, self._worker.plane.signature(target), INPUT)


def _refusal(response: ModelResponse, answer: ModelAnswer) -> ServerRefusal | None:
    """Error of the model server in ``response``, unless the script has given it another status."""
    if response.status_code not in STATUSES:
        return None
    return ServerRefusal(response.status_code, error_text(answer.body) or "")
