"""The parts of nginx.conf that publish TF Serving's own APIs, REST under ``/v1/`` and gRPC: pure.

Requests reach the model servers as they are: no script, no conversion, the model server's own answers. Only
gRPC methods that change nothing are published. With ``HandleReloadConfigRequest`` any caller can load any
path, and the profiler shows other clients' requests: neither is published.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct

from tfs_proxy.deployment import Instance, TraceSampling
from tfs_proxy.observe.request_counts import NGINX_GRPC_FORMAT
from tfs_proxy.supervisor.nginx import traces, uploads
from tfs_proxy.supervisor.nginx.workers import ZONE_SIZE
from tfs_proxy.wire.error_body import NO_MODEL_SERVER
from tfs_proxy.wire.grpc_codes import REFUSALS, GrpcCode
from tfs_proxy.wire.header_names import ASKS_TIMING, GRPC_MODEL, nginx_variable

OPEN_INFERENCE = "/inference.GRPCInferenceService/"
STREAM = f"= {OPEN_INFERENCE}ModelStreamInfer"
HEALTH, HEALTH_WATCH = "= /grpc.health.v1.Health/Check", "= /grpc.health.v1.Health/Watch"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/"

PUBLISHED = ("/tensorflow.serving.PredictionService/", "= /tensorflow.serving.ModelService/GetModelStatus")
"""nginx's patterns of the gRPC methods that are let through."""

HTTP2_DIRECTIVE = (1, 25, 1)
"""The first nginx that has ``http2 on``; later ones warn of ``listen ... http2``."""

CONCURRENT_STREAMS = 1024


class GrpcEndpoint(Struct, frozen=True):
    """Where gRPC is published: the address, and the version of nginx, which writes HTTP/2 in two ways."""

    listen: str
    nginx_version: tuple[int, ...]


class ProxyLimits(Struct, frozen=True):
    """The limits that answers name: MB of a message, seconds that nginx waits for an answer."""

    message_mb: int
    read_seconds: int


def rest_upstream(instances: Sequence[Instance], kept: int) -> str:
    """The model servers' REST sides, for the http block; the least busy one gets the request."""
    servers = [f"{instance.host}:{instance.rest_port}" for instance in instances]
    return _upstream("models", servers, kept) if servers else ""


def grpc_upstream(gates: Sequence[Path], kept: int) -> str:
    """What answers gRPC calls, and their log.

    The model servers' gRPC sides, by links that are there while it has all its models; or the gRPC router.
    """
    log_format = f"log_format grpc_requests '{NGINX_GRPC_FORMAT}';\n    "
    return log_format + _upstream("predictions", [f"unix:{gate}" for gate in gates], kept)


def router_upstream(socket: Path, kept: int) -> str:
    """The gRPC router of one archive, which answers the Open Inference Protocol."""
    return _upstream("inferences", [f"unix:{socket}"], kept)


def _upstream(name: str, addresses: Sequence[str], kept: int) -> str:
    servers = " ".join(f"server {address} max_fails=0;" for address in addresses)
    return (
        f"upstream {name} {{ least_conn; {servers} zone {name} {ZONE_SIZE}; keepalive {kept}; "
        "keepalive_requests 1000000; }"
    )


def rest_location(sampling: TraceSampling | None = None) -> str:
    """``/v1/``, for the server block of one archive."""
    return f"""location ~* ^/v1/ {{
            {to_model_servers(sampling)}
            error_page 404 418 = @python;
            error_page 502 = @python_after;
        }}"""


def to_model_servers(sampling: TraceSampling | None, to_python: int = 418) -> str:
    """The directives that pass a request on to TF Serving's REST API.

    Python takes over, and waits, if the model server is down or has not loaded the model again: the caller
    says where 404, 502 and ``to_python`` lead. It also unpacks bodies, within the limit, and times the stages
    of a request. Errors of the model server pass untouched.
    """
    return f"""if ($request_method !~ "^(GET|POST|OPTIONS)$") {{ return {to_python}; }}
            if ($http_content_encoding) {{ return {to_python}; }}
            if ({nginx_variable(ASKS_TIMING)}) {{ return {to_python}; }}
            {traces.to_python(sampling, to_python)}
            proxy_pass http://models;
            proxy_intercept_errors on;
            error_page 408 /.refused/408;
            error_page 413 /.refused/413;
            {uploads.ERROR_PAGE}
            error_page 504 /.refused/model-server-504;"""


def grpc_server(
    endpoint: GrpcEndpoint, limits: ProxyLimits, logs: tuple[str, ...], passed: Iterable[str]
) -> str:
    """The server block of the gRPC port, with directives for the ``logs`` and locations of what is passed."""
    lines = [
        *_listen(endpoint),
        *logs,
        f"http2_max_concurrent_streams {CONCURRENT_STREAMS};",
        "default_type application/grpc;",
        "grpc_buffer_size 64k;",
        "grpc_connect_timeout 5s;",
        f"grpc_read_timeout {limits.read_seconds}s;",
        f"grpc_send_timeout {limits.read_seconds}s;",
        "grpc_next_upstream error non_idempotent;",
        "grpc_next_upstream_tries 2;",
        f"grpc_hide_header {GRPC_MODEL};",
        *passed,
        "location / { return 404; }",
        *_refusals(limits),
    ]
    return "server {\n        " + "\n        ".join(lines) + "\n    }"


def passed_to_models() -> Iterator[str]:
    """The locations of TF Serving's calls."""
    for pattern in PUBLISHED:
        yield f"location {pattern} {{ grpc_pass grpc://predictions; }}"


def passed_to_router(upstream: str, *, open_inference: bool) -> Iterator[str]:
    """The locations of what the router answers: health, reflection, and the Open Inference Protocol."""
    for pattern in (HEALTH, REFLECTION):
        yield f"location {pattern} {{ grpc_pass grpc://{upstream}; }}"
    # A state that does not change is nothing to say.
    yield f"location {HEALTH_WATCH} {{ grpc_read_timeout 1h; grpc_pass grpc://{upstream}; }}"
    if not open_inference:
        return
    yield f"location {OPEN_INFERENCE} {{ grpc_pass grpc://{upstream}; }}"
    # A stream may be longer than the limit of one message, which the router knows, too.
    yield f"location {STREAM} {{ client_max_body_size 0; grpc_pass grpc://{upstream}; }}"


def _listen(endpoint: GrpcEndpoint) -> tuple[str, ...]:
    if endpoint.nginx_version >= HTTP2_DIRECTIVE:
        return f"listen {endpoint.listen};", "http2 on;"
    return (f"listen {endpoint.listen} http2;",)


def _refusals(limits: ProxyLimits) -> list[str]:
    """``error_page`` lines, and an answer of gRPC, trailers only, for each status."""
    texts = {
        GrpcCode.INVALID_ARGUMENT: "the request is malformed",
        GrpcCode.DEADLINE_EXCEEDED: f"no answer within {limits.read_seconds} seconds",
        GrpcCode.RESOURCE_EXHAUSTED: f"the message is larger than {limits.message_mb} MB, "
        "the limit that SAGEMAKER_MAX_PAYLOAD_IN_MB sets",
        GrpcCode.UNIMPLEMENTED: "not published here: only tensorflow.serving.PredictionService, "
        "GetModelStatus of tensorflow.serving.ModelService, inference.GRPCInferenceService, "
        "grpc.health.v1.Health and reflection can be",
        GrpcCode.UNAVAILABLE: NO_MODEL_SERVER,
    }
    lines = []
    for code, text in texts.items():
        lines.append(f"error_page {' '.join(map(str, REFUSALS[code]))} = /.refused/{code};")
        lines.append(
            f"location = /.refused/{code} {{ internal; add_header grpc-status {code:d}; "
            f'add_header grpc-message "{quote(text, safe=" ,.:")}"; return 200 ""; }}'
        )
    return lines
