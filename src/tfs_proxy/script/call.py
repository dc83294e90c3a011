"""One request through the user's script: data and context in, the model server between, the answer out.

Where AWS's two versions disagree (contract 2.5, 2.9), this holds: an error of the model server reaches
``output_handler``, as in the old one (the new one answers by itself), and what the script makes of it
goes out with the model server's status (the old one: 200, or 500 where the script raised). An
exception of the script's is a 500 with its text, as in both; an error with a status of its own, ours
or falcon's, keeps it, as in the new one, but in the shape ``{"error": text}``.
"""

import io
import logging
from collections.abc import Callable
from http.client import responses
from typing import Any, TypeVar

import requests
from requests.structures import CaseInsensitiveDict

from tfs_proxy.deployment import Instance
from tfs_proxy.errors import RequestError, ScriptFailure
from tfs_proxy.payload import media
from tfs_proxy.payload.default import answer as default
from tfs_proxy.script.channels import Channels
from tfs_proxy.script.context import Context, ScriptRequest
from tfs_proxy.script.load import Script
from tfs_proxy.script.origin import error_text, own_line, own_report
from tfs_proxy.script.response import STATUSES, HTTPError
from tfs_proxy.script.returned import ScriptReply, encoded, script_reply
from tfs_proxy.upstream.base import OK, Answer, Upstream

Read = TypeVar("Read")

log = logging.getLogger(__name__)

REQUEST_EXPECTED = "it must return the model server's request as str or bytes"


class ScriptCaller:
    """A loaded script with what it needs to answer requests; one per worker, used by all its threads.

    ``own_errors`` are exceptions that a script may raise to be answered as they are.
    """

    def __init__(
        self,
        script: Script,
        upstream: Upstream,
        timeout_seconds: float,
        own_errors: tuple[type[Exception], ...] = (),
    ) -> None:
        self._script = script
        self._upstream = upstream
        self._timeout_seconds = timeout_seconds
        self._left_alone: tuple[type[BaseException], ...] = (RequestError, KeyboardInterrupt, *own_errors)
        self._channels = Channels()

    def answer(self, request: ScriptRequest) -> ScriptReply:
        """Run the script: ``handler`` where there is one, else both halves around the model server.

        Raises HTTPError and ``own_errors`` as the script raised them, ScriptFailure for anything else
        that it raises or returns, and UpstreamError where the model server can't be reached.
        """
        instance = self._upstream.choose()
        context = Context(request, instance, self._channels, self._timeout_seconds)
        if self._script.handler is not None:
            returned = self._run("handler", self._script.handler, io.BytesIO(request.body), context)
            return self._read(script_reply, returned, "handler", request.accept, OK)
        return self._halves(request, context, instance)

    def close(self) -> None:
        """Close what requests opened; idempotent."""
        self._channels.close()

    def _halves(self, request: ScriptRequest, context: Context, instance: Instance) -> ScriptReply:
        """Around the model server: the script's halves, the default conversion for one that is missing."""
        body, content_type = request.body, request.content_type
        if self._script.input_handler is not None:
            returned = self._run("input_handler", self._script.input_handler, io.BytesIO(body), context)
            body = self._read(encoded, returned, "input_handler", REQUEST_EXPECTED)
            content_type = media.JSON
        if self._script.output_handler is None:
            reply = default(self._upstream, request.target, body, content_type, request.accept, instance)
            return ScriptReply(reply.body, reply.content_type, reply.status)
        if self._script.input_handler is None:
            asked = default(self._upstream, request.target, body, content_type, media.JSON, instance)
            answer = Answer(asked.status, asked.body, {"Content-Type": media.JSON}, context.rest_uri)
        else:
            answer = self._upstream.forward(request.target, body, instance=instance)
        response = as_response(answer)
        returned = self._run("output_handler", self._script.output_handler, response, context, answer.status)
        return self._read(script_reply, returned, "output_handler", request.accept, answer.status)

    def _read(self, read: Callable[..., Read], *arguments: Any) -> Read:
        """``read`` what the script returned; where it is unusable the log names the script too."""
        try:
            return read(*arguments)
        except ScriptFailure as error:
            log.error("%s: %s", self._script.path, error)  # noqa: TRY400 - the sentence says it all
            raise

    def _run(
        self, name: str, function: Callable[[Any, Any], Any], data: object, context: Context, status: int = OK
    ) -> object:
        """Call one of the script's functions; what it raises becomes the answer, and a line in the log.

        ``status`` is the model server's: where that is an error, the script's own goes out with it.
        """
        try:
            return function(data, context)
        except self._left_alone:
            raise
        except BaseException as error:
            # Not Exception alone: sys.exit or a cancelled task in a script must not end the worker.
            # A subclass of SystemExit is the worker's own end, which arises in whatever code runs.
            if isinstance(error, SystemExit) and type(error) is not SystemExit:
                raise
            raise self._failure(name, error, status) from error

    def _failure(self, name: str, error: BaseException, status: int) -> RequestError:
        line = own_line(error, self._script.path, name)
        if status in STATUSES:
            log.warning("%s (the model server had answered %d)", line, status)
            return HTTPError(status, error_text(error))
        log.error("%s\n%s", line, own_report(error, self._script.path))
        return ScriptFailure(error_text(error))


def as_response(answer: Answer) -> requests.Response:
    """The model server's answer as the ``requests.Response`` that AWS's scripts get."""
    response = requests.Response()
    response.status_code = answer.status
    response.headers = CaseInsensitiveDict(answer.headers)
    response.raw = io.BytesIO(answer.body)
    response.url = answer.url
    response.reason = responses.get(answer.status, "")
    response.encoding = "utf-8"
    # Read at once, as requests.post does: content, text and iter_content may then follow in any order.
    _ = response.content
    return response
