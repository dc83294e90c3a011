"""The requests that nginx sends directly to a model server, as patterns for its configuration: pure.

Only TF Serving's own JSON for models without a script, and only what is certain: `POST` of one JSON object,
in a media type, an Accept and attributes that need no conversion, with a Content-Length that is small, from
a client that does not ask for the times of stages. Anything else, and anything that the
model server refuses, goes to Python with the same body, so that both ways give the same answers. Values from
headers reach a path only through patterns that name every character allowed: those of `values.attributes`,
which Python reads the same header by.
"""

from collections.abc import Mapping

from tfs_proxy.values import attributes
from tfs_proxy.values.attributes import MODEL_NAME, MODEL_VERSION, Attribute
from tfs_proxy.wire.media_types import JSON

MAX_BRACES = 6
"""Deepest nesting of objects; a deeper body goes to Python."""

MAX_BODY_MB = 4
"""Largest body that nginx holds in memory and inspects; a larger one goes to Python."""

SMALL = f"(?:[0-9]{{1,6}}|[1-{MAX_BODY_MB - 1}][0-9]{{6}})"
"""A Content-Length below ``MAX_BODY_MB``."""

ACCEPTS = ("", "*/*", JSON)

BETWEEN = r"[^{}\"\x80-\xff]*+"
STRING = r"\"[^\"\\\\\x80-\xff]*+(?:\\\\.[^\"\\\\\x80-\xff]*+)*+\""
SPACE = r"[ \t\r\n]*+"


def _object(depth: int) -> str:
    """One object with balanced braces outside of strings, at most ``depth`` deep; in nginx's quoting.

    Nothing in it backtracks or recurses, so a match takes at most two steps a character and no memory:
    PCRE gives up at ten million steps, which `MAX_BODY_MB` can't reach, and nginx would log the body.
    """
    inner = STRING if depth == 1 else f"{STRING}|{_object(depth - 1)}"
    return rf"\{{{BETWEEN}(?:(?:{inner}){BETWEEN})*+\}}"


def only_object() -> str:
    """A body that is one object.

    TF Serving answers the first document of a body and silently ignores the rest; several documents are
    records, which Python converts.
    """
    return f"^{SPACE}{_object(MAX_BRACES)}{SPACE}\\z"


def _captured(attribute: Attribute) -> str:
    """``key=value`` of an attribute, with its value in nginx's variable ``tfs_FIELD``."""
    return f"{attribute.key}=(?<tfs_{attribute.field}>{attribute.certain})"


MODEL = _captured(MODEL_NAME)
METHOD = f"(?:,{_captured(attributes.METHOD)})?"
VERSION = f"(?:,{_captured(MODEL_VERSION)})?"


def values() -> Mapping[str, object]:
    """The values of this module by the names that the templates have for them."""
    return {
        "buffer_mb": MAX_BODY_MB,
        "small_length": SMALL,
        "only_object": only_object(),
        "model_in_attributes": MODEL,
        "version_in_attributes": VERSION,
        "method_in_attributes": METHOD,
    }
