"""What a script's function returned, read and checked: the last step of `script.call`."""

import re
from dataclasses import dataclass
from http import HTTPStatus

from tfs_proxy.errors import ScriptFailure
from tfs_proxy.payload import media

EXPECTED = "it must return (body, content_type), or a body that is str or bytes"
PAIR = 2
_TYPE = re.compile(r"[!#$%&'+\-.^_`|~0-9a-z]+/[!#$%&'+\-.^_`|~0-9a-z]+")


@dataclass(frozen=True, slots=True)
class ScriptReply:
    """The answer to one request: ``body`` is encoded, ``content_type`` a single media type."""

    body: bytes
    content_type: str
    status: int = HTTPStatus.OK


def script_reply(returned: object, function: str, accept: str | None, status: int) -> ScriptReply:
    """Read what ``function`` returned: (body, content_type) or a bare body, str or bytes (contract 2.5).

    Where the script names no type, the answer's is the first that ``accept`` names without a
    wildcard, else application/json. Raises ScriptFailure, naming what came and what is expected.
    """
    body, content_type = returned, None
    if isinstance(returned, (tuple, list)):
        if len(returned) != PAIR:
            raise ScriptFailure(f"{function} returned {len(returned)} values: {EXPECTED}")
        body, content_type = returned
    return ScriptReply(encoded(body, function, EXPECTED), _reply_type(content_type, function, accept), status)


def encoded(body: object, function: str, expected: str) -> bytes:
    """``body`` as bytes, text as UTF-8. Raises ScriptFailure for anything that is neither."""
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
            raise ScriptFailure(f"{function} returned {_named(body)}: {expected}")


def _named(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


def _reply_type(content_type: object, function: str, accept: str | None) -> str:
    """The reply's Content-Type: the script's word, or the default.

    Scripts often hand back ``context.accept_header`` as it is; where that is a list or a wildcard
    it is a question, not an answer.
    """
    accept = accept or ""
    if content_type is None or (content_type == accept and ("," in accept or "*" in accept)):
        return _concrete_type(accept)
    if not isinstance(content_type, str):
        raise ScriptFailure(f"{function} returned {_named(content_type)} as content type: it must be str")
    if not (content_type.isascii() and content_type.isprintable()):
        raise ScriptFailure(f"{function} returned a content type that is no printable ASCII text")
    return content_type or _concrete_type(accept)


def _concrete_type(accept: str) -> str:
    for element in accept.split(","):
        name = element.partition(";")[0].strip().lower()
        if _TYPE.fullmatch(name) is not None:
            return name
    return media.JSON
