"""Runner of the functions of a user's script, async ones too; it turns their exceptions into answers."""

import errno
import inspect
import json
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from http import HTTPStatus
from numbers import Number
from types import NoneType
from typing import Any, Self

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tfs_proxy.data.formats.untyped import json_of_object
from tfs_proxy.data.open_inference.infer_codec import InferCodec
from tfs_proxy.observe.logs.reasons import model_server_reason
from tfs_proxy.observe.request_record import (
    INPUT_HANDLER,
    MODEL_SERVER,
    OUTPUT_HANDLER,
    note_failed,
    require_client,
    stage,
)
from tfs_proxy.serving.script.deadline import Abandoned, DeadlineWatch
from tfs_proxy.serving.script.event_loop import WorkerLoop
from tfs_proxy.serving.script.load import client_text, own_line, own_report
from tfs_proxy.serving.script.typed import is_declared
from tfs_proxy.serving.script.values import HTTPError, Response
from tfs_proxy.values.errors import ClientGone, RequestError, ScriptFailure
from tfs_proxy.wire import media_types as media

log = logging.getLogger(__name__)

_STAGES = {"predict_fn": MODEL_SERVER, "output_handler": OUTPUT_HANDLER, "output_fn": OUTPUT_HANDLER}


def stage_of(function: str) -> int:
    """Stage of a request that the time of a script's function counts as."""
    return _STAGES.get(function, INPUT_HANDLER)


class ServerRefusal(Struct, frozen=True):
    """Error of the model server that a script is called with: its status, and its words if it gave any."""

    status: int
    words: str

    @property
    def noted(self) -> str:
        """Error for the log, without the client's text."""
        reason = model_server_reason(self.words)
        return f"the model server had answered {self.status}{': ' if reason else ''}{reason}"

    def then(self, failure: str, text: str) -> HTTPError:
        """Error for the client if the script then fails, with ``text`` of its own: the words come once."""
        quoted = (json.dumps(self.words, ensure_ascii=False), json.dumps(self.words), repr(self.words))
        has_words = any(form in text for form in (self.words, *(form[1:-1] for form in quoted)))
        error = HTTPError(self.status, text if has_words else f"{self.words} (then {failure})")
        said = model_server_reason(text if has_words else self.words)
        error.reason = said if has_words else f"{said} (then {failure})"
        return error


class ScriptRunner:
    """Calls functions of the script at ``path``; one per worker, used by all its threads.

    ``own_errors`` are exceptions that a script may raise to be answered as they are. ``watch`` ends calls
    that are over their deadline; without it there is none. ``begun`` says that the script has to be told
    of the end.
    """

    def __init__(
        self,
        path: str,
        own_errors: tuple[type[Exception], ...] = (),
        watch: DeadlineWatch | None = None,
    ) -> None:
        self.path = path
        self.loop = WorkerLoop()
        self.begun = False
        self.watch = watch or DeadlineWatch()
        self._refusal: Callable[[], ServerRefusal | None] = lambda: None
        self._left_alone: tuple[type[BaseException], ...] = (RequestError, *own_errors)

    def after(self, refusal: Callable[[], ServerRefusal | None]) -> Self:
        """Make a runner for functions that see the model server's answer.

        If that is a ``refusal``, a failure of the script goes out with its status and words.
        """
        runner = object.__new__(type(self))  # PERF: copy.copy takes six times as long
        runner.__dict__.update(self.__dict__, _refusal=refusal)
        return runner

    def call(self, name: str, function: Callable[..., Any], *arguments: Any, anyway: bool = False) -> Any:
        """Call one of the script's functions, and wait for its result if it is a coroutine.

        Its exception becomes the answer, and a line in the log: HTTPError, other errors of ours and
        ``own_errors`` as they are, anything else as ScriptFailure. Raises ClientGone without a call,
        unless it is to be made ``anyway``, or instead of waiting for a coroutine, which is cancelled.
        """
        try:
            with stage(stage_of(name), name):
                if not anyway:
                    require_client()
                result = function(*arguments)
                if not inspect.isawaitable(result):
                    return result
                return self.loop.wait_for(result, self.watch.current(), arguments)
        except self._left_alone:
            raise
        except BaseException as error:
            if self.watch.is_abandoned():
                raise Abandoned from None
            # Not Exception alone: sys.exit or a cancelled task in a script must not end the worker.
            # A subclass of SystemExit is the worker's own end, which arises in whatever code runs.
            if isinstance(error, SystemExit) and type(error) is not SystemExit:
                raise
            raise self.failure(name, error) from error

    def close(self, function: Callable[[], Any] | None) -> None:
        """Call the script's ``close()`` if it has one, and end the event loop; idempotent."""
        if self.begun and function is not None:
            self.begun = False
            try:
                self.call("close", function)
            except Exception as error:  # noqa: BLE001 - the worker ends all the same
                log.warning("%s: close() failed: %s", self.path, error)
        self.loop.close()

    def complain(self, error: ScriptFailure) -> RequestError:
        """Name the script in the log if its result is unusable; returns the error to raise."""
        refusal = self._refusal()
        if refusal is None:
            log.error("%s: %s", self.path, error)
            return error
        log.warning("%s: %s (%s)", self.path, error, refusal.noted)
        return refusal.then(str(error), str(error))

    def failure(self, name: str, error: BaseException) -> RequestError:
        """Log an exception of the script's function ``name``; returns the error for the client."""
        line = own_line(error, self.path, name)
        text = client_text(error, self.path)
        refusal = self._refusal()
        if refusal is None:
            log.error("%s\n%s", line, own_report(error, self.path))
            return ScriptFailure(text)
        log.warning("%s (%s)", line, refusal.noted)
        return refusal.then(f"{name} failed: {text}", text)


_END = object()
EXPECTED_PIECES = "what it yields must be str or bytes"


class Stream:
    """Pieces of one answer, as bytes; the first is made at once, so that an error in it is an answer.

    An error in a later piece, when the status has been sent, is raised as ConnectionResetError: the
    server then breaks the connection, and the client knows that the answer is not whole. Each piece
    has the deadline of a whole call. ``close``
    closes the script's generator, at its end and if the client is gone.
    """

    def __init__(
        self, pieces: Iterator[Any] | AsyncIterator[Any], function: str, runner: ScriptRunner
    ) -> None:
        self._pieces = pieces
        self._function = function
        self._runner = runner
        self._closed = False
        call = runner.watch.current()
        self._request = None if call is None else call.request
        self._first: bytes | None = None
        try:
            self._first = self._next()
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        first = self._first
        self._first = b""
        if first:
            return first
        try:
            with self._deadline():
                piece = None if first is None else self._next()
        except Abandoned:
            raise
        except Exception as error:
            if not isinstance(error, ClientGone):
                log.warning("%s failed in the middle of its answer: %s", self._function, error)
            broken = ConnectionResetError(errno.ECONNRESET, "a streamed answer could not be completed")
            raise broken from error
        if piece is None:
            raise StopIteration
        return piece

    def close(self) -> None:
        """Close the script's generator, whose ``finally`` runs; idempotent, and never raises."""
        if self._closed:
            return
        self._closed = True
        close = getattr(self._pieces, "aclose", None) or getattr(self._pieces, "close", None)
        if close is None:
            return
        try:
            with self._deadline():
                self._runner.call(self._function, close, anyway=True)
        except Exception as error:  # noqa: BLE001 - the answer is over; the runner has logged it
            log.debug("closing what %s yields failed: %s", self._function, error)

    def _deadline(self) -> AbstractContextManager[None]:
        """Start a deadline for the next piece, on whichever thread the server makes it."""
        self._runner.watch.serve(self._request)
        return self._runner.watch.call(streaming=True)

    def _next(self) -> bytes | None:
        """Next piece that is not empty, None at the end: an empty one would end a chunked answer."""
        while True:
            if isinstance(self._pieces, Iterator):
                piece = self._runner.call(self._function, next, self._pieces, _END)
            else:
                piece = self._runner.call(self._function, anext, self._pieces, _END)
            if piece is _END:
                return None
            read = encoded(piece, self._function, EXPECTED_PIECES)
            if read:
                return read


def encoded(body: object, function: str, expected: str) -> bytes:
    """Encode text as UTF-8, and return bytes as they are. Raises ScriptFailure for anything else."""
    match body:
        case bytes():
            return body
        case str():
            try:
                return body.encode()
            except UnicodeEncodeError as error:
                raise ScriptFailure(
                    f"{function} returned text that UTF-8 can't encode: {error.reason}"
                ) from None
        case bytearray() | memoryview():
            return bytes(body)
        case _:
            raise ScriptFailure(f"{function} returned {named(body)}: {expected}")


def named(value: object) -> str:
    """Describe ``value`` for an error text."""
    return "None" if value is None else f"a value of type {type(value).__name__}"


EXPECTED = (
    "it must return (body, content_type), or a body that is str or bytes, or a tfs_proxy.Response, "
    "or an iterator of str or bytes, or a dict or an object of a declared class, which is answered as JSON"
)
PAIR = 2
_TYPE = re.compile(r"[!#$%&'+\-.^_`|~0-9a-z]+/[!#$%&'+\-.^_`|~0-9a-z]+")
_ANY_TYPE = "*/*"


class ScriptReply(Struct, frozen=True):
    """Answer to one request: ``body`` is encoded, or a stream; ``content_type`` a single media type."""

    body: bytes | Stream
    content_type: str
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)

    def with_header(self, name: str, value: str | None) -> "ScriptReply":
        """Add a header, unless the script gave it itself or ``value`` is None."""
        if value is None or any(own.lower() == name.lower() for own in self.headers):
            return self
        return replace(self, headers={**self.headers, name: value})


def script_reply(
    returned: object,
    function: str,
    accept: str | None,
    status: int,
    runner: ScriptRunner,
    codec: InferCodec | None = None,
) -> ScriptReply:
    """Read the result of ``function``: a Response, (body, content_type), a bare body or an object.

    AWS's forms are in docs/reference/aws-container.md. A dict is tensors for a ``codec`` of the Open
    Inference Protocol; without one, it and other objects are JSON, but not None over an error.
    A body is str or bytes, or an iterator of them, whose first piece is made here. If the script
    names no type, the answer's is the first that ``accept`` names without a wildcard, else
    application/json. Raises ScriptFailure, naming the result and what is expected, and the exception
    of the script over a first piece.
    """
    try:
        if codec is None and (returned is not None or status < HTTPStatus.BAD_REQUEST):
            returned = _in_json(returned, function)
        elif codec is not None and isinstance(returned, Mapping):
            returned = codec.encode(returned)
        response = _as_response(returned, function, accept)
        content_type = _reply_type(response.content_type, function, accept)
        if isinstance(response.body, (Iterator, AsyncIterator)):
            body: bytes | Stream = Stream(response.body, function, runner)
        else:
            body = encoded(response.body, function, EXPECTED)
    except ScriptFailure as error:
        note_failed(stage_of(function))
        raise runner.complain(error) from error.__cause__
    if (response.status or status) >= HTTPStatus.BAD_REQUEST:
        note_failed(stage_of(function))
    return ScriptReply(body, content_type, response.status or status, dict(response.headers))


def _in_json(returned: object, function: str) -> object:
    """Write an object, also that of a Response, as JSON; all else stays."""
    if isinstance(returned, (str, bytes, tuple)):
        return returned
    if isinstance(returned, Response):
        body = _in_json(returned.body, function)
        if not isinstance(body, Response):
            return returned
        kind = returned.content_type or body.content_type
        return Response(body.body, kind, returned.status, returned.headers)
    elements = returned if isinstance(returned, list) else [returned]
    kinds = (Mapping,) if isinstance(returned, list) else (Mapping, Number, np.bool_, NoneType)
    if not all(isinstance(each, kinds) or is_declared(type(each)) for each in elements):
        return returned
    try:
        return Response(json_of_object(returned), media.JSON)
    except TypeError as error:
        raise ScriptFailure(f"{function} returned what JSON can't carry: {error}") from None


def _as_response(returned: object, function: str, accept: str | None) -> Response:
    if isinstance(returned, Response):
        return returned
    if isinstance(returned, list) and not _is_pair(returned, accept):
        raise ScriptFailure(f"{function} returned a list that is not [body, content_type]: {EXPECTED}")
    if not isinstance(returned, (tuple, list)):
        return Response(returned)
    if len(returned) != PAIR:
        raise ScriptFailure(f"{function} returned {len(returned)} values: {EXPECTED}")
    return Response(*returned)


def _is_pair(returned: list[object], accept: str | None) -> bool:
    """True if a list is a body with its type, and not the values of an answer."""
    kind = returned[1] if len(returned) == PAIR else ""
    is_type = isinstance(kind, str) and _TYPE.fullmatch(media.bare(kind)) is not None
    return is_type or kind is None or (bool(kind) and kind in (_ANY_TYPE, accept))


def _reply_type(content_type: object, function: str, accept: str | None) -> str:
    """Content-Type of the reply: the script's, or the default.

    Scripts often hand back ``context.accept_header`` as it is; if that is a list or a wildcard
    it is a question, not an answer.
    """
    accept = accept or ""
    if content_type is None or (content_type == accept and ("," in accept or "*" in accept)):
        return _concrete_type(accept)
    if not isinstance(content_type, str):
        raise ScriptFailure(f"{function} returned {named(content_type)} as content type: it must be str")
    if not (content_type.isascii() and content_type.isprintable()):
        raise ScriptFailure(f"{function} returned a content type that is not printable ASCII")
    return content_type or _concrete_type(accept)


def _concrete_type(accept: str) -> str:
    for element in accept.split(","):
        if _TYPE.fullmatch(media.bare(element)) is not None:
            return media.bare(element)
    return media.JSON
