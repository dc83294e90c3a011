"""The one shape of an error, for the app and for the workers, who must not import falcon."""

import json

INTERNAL_ERROR = "internal error: what happened is in the server's log"


def error_body(text: str) -> bytes:
    """``{"error": text}``; ASCII, so that no text can fail to be encoded."""
    return json.dumps({"error": text}).encode("ascii")
