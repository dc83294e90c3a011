"""What a script's function returned, read and checked: the last step of `script.call`."""

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from http import HTTPStatus

from msgspec import Struct, field
from msgspec.structs import replace

from tfs_proxy.errors import ScriptFailure
from tfs_proxy.observe.request_record import note_failed
from tfs_proxy.payload import media_types as media
from tfs_proxy.script.runner import ScriptRunner, stage_of
from tfs_proxy.script.stream import Stream, encoded, named
from tfs_proxy.script.values import Response

EXPECTED = (
    "it must return (body, content_type), or a body that is str or bytes, or a tfs_proxy.Response, "
    "or an iterator of str or bytes"
)
PAIR = 2
_TYPE = re.compile(r"[!#$%&'+\-.^_`|~0-9a-z]+/[!#$%&'+\-.^_`|~0-9a-z]+")
_ANY_TYPE = "*/*"


class ScriptReply(Struct, frozen=True):
    """The answer to one request: ``body`` is encoded, or a stream; ``content_type`` a single media type."""

    body: bytes | Stream
    content_type: str
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)

    def with_header(self, name: str, value: str | None) -> "ScriptReply":
        """This reply with one more header, unless the script gave it itself or ``value`` is None."""
        if value is None or any(own.lower() == name.lower() for own in self.headers):
            return self
        return replace(self, headers={**self.headers, name: value})


def script_reply(
    returned: object, function: str, accept: str | None, status: int, runner: ScriptRunner
) -> ScriptReply:
    """Read what ``function`` returned: a Response, (body, content_type) or a bare body.

    AWS's forms are in docs/reference/aws-container.md.
    A body is str or bytes, or an iterator of them, whose first piece is made here. If the script
    names no type, the answer's is the first that ``accept`` names without a wildcard, else
    application/json. Raises ScriptFailure, naming what came and what is expected, and what the
    script raises over a first piece.
    """
    try:
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
    """Whether a list is a body with its type, and not the values of an answer."""
    kind = returned[1] if len(returned) == PAIR else ""
    is_type = isinstance(kind, str) and _TYPE.fullmatch(_name_of(kind)) is not None
    return is_type or kind is None or (bool(kind) and kind in (_ANY_TYPE, accept))


def _reply_type(content_type: object, function: str, accept: str | None) -> str:
    """The reply's Content-Type: the script's word, or the default.

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
        if _TYPE.fullmatch(_name_of(element)) is not None:
            return _name_of(element)
    return media.JSON


def _name_of(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()
