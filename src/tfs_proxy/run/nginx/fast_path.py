"""The requests that nginx sends directly to a model server, as patterns for its configuration: pure.

Only TF Serving's own JSON for models without a script, and only what is certain: `POST` of one JSON object,
in a media type, an Accept and attributes that need no conversion, with a Content-Length that is small, from
a client that does not ask for the times of stages. Anything else, and anything that the
model server refuses, goes to Python with the same body, so that both ways give the same answers. Values from
headers reach a path only through patterns that name every character allowed: those of `values.attributes`,
which Python reads the same header by.
"""

from tfs_proxy.values.deployment import Deployment
from tfs_proxy.wire.media_types import JSON

MAX_BRACES = 6
"""Deepest nesting of objects; a deeper body goes to Python."""

MAX_BODY_MB = 4
"""Largest body that nginx holds in memory and inspects; a larger one goes to Python."""

SMALL = f"(?:[0-9]{{1,6}}|[1-{MAX_BODY_MB - 1}][0-9]{{6}})"
"""A Content-Length below ``MAX_BODY_MB``."""

ACCEPTS = ("", "*/*", JSON)


def suits(deployment: Deployment) -> bool:
    """True without a script, a default Accept, data capture, and the lines of a batch job."""
    is_own = deployment.script is None and deployment.default_accept in {None, JSON}
    return is_own and not deployment.is_batch and deployment.observation.capture is None


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
