"""Names of HTTP headers that several modules use, in Python and in nginx's configuration."""

REQUEST_ID = "X-Request-Id"
INFERENCE_ID = "X-Amzn-SageMaker-Inference-Id"
CUSTOM_ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
TARGET_MODEL = "X-Amzn-SageMaker-Target-Model"
SAGEMAKER_PREFIX = "X-Amzn-SageMaker-"
TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
X_RAY = "X-Amzn-Trace-Id"

INFERENCE_HEADER_LENGTH = "Inference-Header-Content-Length"
"""Number of bytes of JSON in a body of the Open Inference Protocol, before its binary data."""

ASKS_TIMING = "X-Tfs-Proxy-Timing"
"""A client asks for the times of its request's stages."""

DECODED = "X-Tfs-Proxy-Decoded"
"""Tells a client who asked for timing the decoded body: JSON, dtype and shape by tensor name."""

NGINX_ID = "X-Tfs-Proxy-Request"
"""nginx's id of a request and its arrival time, for the worker's journal."""

SENT_AGAIN = "X-Tfs-Proxy-Again"
"""nginx marks a request whose first worker did not answer."""

HAD_MODEL_SERVER = "X-Tfs-Proxy-Sent"
"""nginx marks a request that a model server did not answer."""

IS_CAPTURED = "X-Tfs-Proxy-Capture"
"""nginx marks a request that is recorded."""

IS_SAMPLED = "X-Tfs-Proxy-Sampled"
"""nginx marks a request that is sampled for traces."""

SERVED_NAME = "X-Tfs-Proxy-Model"
"""nginx names the loaded model, or the served one, for workers that have many."""

IN_FLIGHT = "X-Tfs-Proxy-In-Flight"
"""nginx tells the number of its requests, including those that wait for a worker."""

STAGE_TIMES = "X-Tfs-Proxy-Stages"
"""A worker tells nginx the times of a request's stages, for its line in the log."""

GRPC_MODEL = "X-Tfs-Proxy-Model"
"""The gRPC router tells nginx the model of a call, and its version or ``-``, for the call's line."""


def wsgi_name(header: str) -> str:
    """The key of a request's header in a WSGI environ (PEP 3333)."""
    return "HTTP_" + header.upper().replace("-", "_")


def nginx_variable(header: str, kind: str = "http") -> str:
    """nginx's variable for a request's header, or for that of an ``upstream_http`` answer."""
    return f"${kind}_" + header.lower().replace("-", "_")
