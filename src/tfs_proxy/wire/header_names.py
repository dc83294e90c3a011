"""Names of HTTP headers that several modules use, in Python and in nginx's configuration."""

REQUEST_ID = "X-Request-Id"
INFERENCE_ID = "X-Amzn-SageMaker-Inference-Id"
CUSTOM_ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
TARGET_MODEL = "X-Amzn-SageMaker-Target-Model"
SAGEMAKER_PREFIX = "X-Amzn-SageMaker-"
TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"

INFERENCE_HEADER_LENGTH = "Inference-Header-Content-Length"
"""Number of bytes of JSON in a body of the Open Inference Protocol, before its binary data."""

ASKS_TIMING = "X-Tfs-Proxy-Timing"
"""Header by which a client asks for the times of its request's stages."""

DECODED = "X-Tfs-Proxy-Decoded"
"""Answer's header for a client that asked for timing: dtype and shape of the body by tensor name, as JSON."""

NGINX_ID = "X-Tfs-Proxy-Request"
"""Header from nginx: a request's id, the time of sending, and `AGAIN` or `SENT` if someone had it before."""

AGAIN = "again"
SENT = "sent"
"""The first worker of this request did not answer, or a model server did not."""

IS_SAMPLED = "X-Tfs-Proxy-Sampled"
"""Header from nginx: this request is sampled for traces."""

SERVED_NAME = "X-Tfs-Proxy-Model"
"""Header from nginx with the name of the loaded or served model, for workers that have many."""

IN_FLIGHT = "X-Tfs-Proxy-In-Flight"
"""Header from nginx with the number of its requests in flight, including those that wait for a worker."""

AUTHORIZATION = "Authorization"
API_KEY = "X-Api-Key"
"""Headers of a caller's key."""

CALLER = "X-Tfs-Proxy-Caller"
"""Header from nginx with the name of the caller's key, for traces."""

STAGE_TIMES = "X-Tfs-Proxy-Stages"
"""Header from a worker with the times of a request's stages, for nginx's line in the log."""


def bearer(key: str | None) -> dict[str, str]:
    """Headers of a request with a key; none without one. Raises ValueError for what can't be sent."""
    if key is not None and not (key.isascii() and key.isprintable() and key and " " not in key):
        raise ValueError("a key is characters of ASCII without spaces")
    return {} if key is None else {AUTHORIZATION: f"Bearer {key}"}


def wsgi_name(header: str) -> str:
    """Key of a request's header in a WSGI environ (PEP 3333)."""
    return "HTTP_" + header.upper().replace("-", "_")


def nginx_variable(header: str, kind: str = "http") -> str:
    """Variable of nginx for a request's header, or for that of an ``upstream_http`` answer."""
    return f"${kind}_" + header.lower().replace("-", "_")
