"""The JSON form of all errors, ``{"error": text}``, and sentences that several programs answer."""

import json
from collections.abc import Sequence

from tfs_proxy.values.errors import Fault
from tfs_proxy.values.names import utf8_texts

MODEL_SERVER = "The model server"

INTERNAL_ERROR = "internal error: what happened is in the server's log"
HEADERS_TOO_LARGE = "the request's headers are too large"
UNKNOWN_TRANSFER_CODING = "this transfer coding is not implemented: send chunked or none"
NOTHING_HERE = "there is nothing at this path: POST goes to /invocations, GET to /ping"
TO_ENDPOINTS = "/endpoints/"
"""Beginning of the paths that SageMaker's clients send requests for an endpoint to."""

NO_ENDPOINT = (
    "this is a container, and not an endpoint of SageMaker: POST goes to /invocations, and "
    "`tfs-proxy endpoint` answers boto3"
)
TOO_LATE = "the request did not arrive in time"
TOO_MANY_UPLOADS = (
    "too many large bodies are arriving at once: the disk on which they wait has no room for another one"
)
UPLOAD_RETRY_SECONDS = 5
NO_MODEL_SERVER = "no model server is ready: starting, or being restarted"
UNKNOWN_HTTP_VERSION = "this version of HTTP is not supported"
WORKER_DIED = (
    "The worker process that handled this request ended before it answered: it crashed or was killed, "
    "perhaps for lack of memory; see the log. The request is not sent again, since it may be the cause."
)


def error_body(text: str, details: Sequence[Fault] = (), **more: object) -> bytes:
    """``{"error": text}``, ``details`` if there are any and ``more`` fields, in ASCII for any text."""
    known = {"details": details} if details else {}
    return json.dumps(utf8_texts({"error": text, **known, **more})).encode("ascii")


def error_text(body: bytes) -> str | None:
    """The text of a server's ``{"error": text}``; None if the body is anything else.

    The body need not be strict JSON: TF Serving may write raw line ends in a string.
    """
    try:
        answer = json.loads(body.decode(errors="replace"), strict=False)
    except (ValueError, RecursionError):
        return None
    error = answer.get("error") if isinstance(answer, dict) else None
    return error if isinstance(error, str) else None


def nothing_here(path: str) -> tuple[str, bytes]:
    """The text and the body of a 404; SageMaker's clients show their users a ``message``."""
    if path.startswith(TO_ENDPOINTS):
        return NO_ENDPOINT, error_body(NO_ENDPOINT, message=NO_ENDPOINT)
    return NOTHING_HERE, error_body(NOTHING_HERE)


def being_unloaded(model: str) -> str:
    return f"model {model} is being unloaded"


def body_too_large(limit: str) -> str:
    """The text of a 413; ``limit`` has its unit."""
    return f"the body is larger than {limit}, the limit that SAGEMAKER_MAX_PAYLOAD_IN_MB sets"


def not_allowed(method: str, allowed: str) -> str:
    """The text of a 405; ``allowed`` is the Allow header."""
    return f"{method} is not allowed at this path: use {allowed}"


def not_reached(server: str) -> str:
    """The text if nothing accepts connections at a server's address."""
    return f"{server} can't be reached."


def not_answered(server: str, seconds: float) -> str:
    """The text if a server did not answer within the time for a whole answer."""
    return f"{server} did not answer within {seconds:g} seconds."


def answer_too_large(server: str, limit_bytes: int) -> str:
    """The text if a server's answer is over the limit."""
    megabytes = limit_bytes >> 20
    return f"{server}'s answer is over {megabytes} MB. TFS_PROXY_MAX_ANSWER_MB sets the limit of predictions."


def connection_closed(server: str) -> str:
    """The text if a server ends the connection before the first byte of an answer."""
    return f"{server} closed the connection without an answer."
