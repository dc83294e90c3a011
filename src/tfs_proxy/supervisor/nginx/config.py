"""The configuration of nginx: pure. nginx routes and buffers, Python decides."""

import os
import pwd
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

from tfs_proxy.attributes import MODEL_LABEL, MODEL_NAME, MODEL_VERSION
from tfs_proxy.deployment import Deployment
from tfs_proxy.layout import Workspace
from tfs_proxy.names import is_model_name
from tfs_proxy.observe.request_counts import NGINX_FORMAT
from tfs_proxy.observe.request_record import PLAIN_ID
from tfs_proxy.observe.routes import INVOCATIONS
from tfs_proxy.payload.media_types import JSON
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor.nginx import access_log, fast_path, serving_api, traces, uploads
from tfs_proxy.supervisor.nginx.serving_api import GrpcEndpoint, ProxyLimits
from tfs_proxy.supervisor.requests_in_flight import NGINX_COUNT
from tfs_proxy.wire.error_body import (
    HEADERS_TOO_LARGE,
    MODEL_SERVER,
    TOO_LATE,
    TOO_MANY_UPLOADS,
    UNKNOWN_HTTP_VERSION,
    UNKNOWN_TRANSFER_CODING,
    UPLOAD_RETRY_SECONDS,
    body_too_large,
    error_body,
    not_answered,
)
from tfs_proxy.wire.header_names import (
    CUSTOM_ATTRIBUTES,
    HAD_MODEL_SERVER,
    INFERENCE_ID,
    NGINX_ID,
    REQUEST_ID,
    SENT_AGAIN,
    STAGE_TIMES,
    nginx_variable,
)

REFUSALS: Mapping[int, str] = {
    400: "bad request: it is not valid HTTP (RFC 9112)",
    403: "forbidden",
    404: "there is nothing at this path",
    405: "this method is not allowed here",
    408: TOO_LATE,
    411: "a Content-Length is needed",
    413: body_too_large("$limit MB"),
    414: "the URI is too long",
    416: "the range can't be satisfied",
    421: "misdirected request",
    429: "too many requests",
    431: HEADERS_TOO_LARGE,
    500: "internal error of nginx",
    501: UNKNOWN_TRANSFER_CODING,
    503: "not available",
    504: "no answer in time",
    505: UNKNOWN_HTTP_VERSION,
}
"""What nginx refuses by itself, as the text under ``error``."""

KEEP_ALIVE_SECONDS = 75

PROXY_HEADERS = (
    'proxy_set_header Connection "";',
    "proxy_set_header Host $http_host;",
    f"proxy_set_header {REQUEST_ID} $chosen_id;",
)

ID_HEADER = f"add_header {REQUEST_ID} $chosen_id always;"
"""On every answer, in place of a server's own. A location with an ``add_header`` of its own repeats it."""

MOST_CONNECTIONS = 8192

REPLACED: Mapping[int, int] = {494: 431, 495: 400, 496: 400, 497: 400}
"""nginx's own status numbers, and what clients get instead."""


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """Where nginx listens, and where it sends requests to.

    ``grpc`` is None if gRPC is not published, ``serving`` until everything is ready. ``free_bytes`` are
    those of the disk on which bodies wait, ``descriptors`` how many nginx may have open. ``counts_requests``
    says whether this nginx knows how many requests it has.
    """

    listen: str
    web: tuple[str, ...]
    control_socket: Path
    grpc: GrpcEndpoint | None = None
    serving: Deployment | None = None
    free_bytes: int = 0
    descriptors: int = MOST_CONNECTIONS
    counts_requests: bool = True

    @property
    def fast(self) -> str | None:
        """The default model if requests may bypass the workers: no script, no default Accept; else None."""
        serving = self.serving
        if serving is None or serving.script is not None or serving.default_accept not in {None, JSON}:
            return None
        if not is_model_name(serving.default_model):  # a flag may give a model any name
            return None
        return serving.default_model


def find() -> str | None:
    """The nginx program, even if a user's PATH has no sbin; None if it is not installed."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/bin")


def config(proxy: ProxyConfig, settings: Settings, workspace: Workspace) -> str:
    """The whole nginx.conf."""
    template = Template(files(__package__).joinpath("nginx.conf.template").read_text())
    limits = ProxyLimits(
        settings.max_payload_mb,
        max(settings.nginx_proxy_read_timeout_seconds, settings.gunicorn_timeout_seconds),
    )
    serving = proxy.serving
    sampling = serving.traces if serving else None
    capture = serving.capture if serving else None
    marks = (*traces.headers(sampling), *((fast_path.CAPTURED_HEADER,) if capture else ()))
    gates = [workspace.grpc_gate(index) for index in range(settings.instance_count)]
    return template.substitute(
        user=_user_line(),
        home=workspace.nginx,
        requests=workspace.requests,
        request_format=NGINX_FORMAT,
        listen=proxy.listen,
        web_servers="\n        ".join(f"server {address} max_fails=0;" for address in proxy.web),
        proxy_headers="\n        ".join((*PROXY_HEADERS, *traces.headers(sampling))),
        chosen_id=_chosen_id(),
        id_header=ID_HEADER,
        access_log=access_log.directives(settings, workspace.access),
        id_header_name=REQUEST_ID,
        stages_header=STAGE_TIMES,
        invocations=INVOCATIONS,
        asked_model=_asked_model(),
        to_workers=_to_workers("web", marks),
        to_workers_again=_to_workers("web_anew", marks, again="1"),
        to_workers_after=_to_workers("web", marks, sent="1"),
        control_socket=proxy.control_socket,
        in_flight="$connections_writing" if proxy.counts_requests else '""',
        in_flight_header=NGINX_COUNT,
        log_level=access_log.error_level(settings.nginx_loglevel),
        max_payload_mb=limits.message_mb,
        max_fast_body_mb=fast_path.MAX_BODY_MB,
        read_seconds=limits.read_seconds,
        stalled_seconds=uploads.STALLED_SECONDS,
        large_bodies=uploads.limit(fast_path.MAX_BODY_MB),
        most_large_bodies=uploads.maximum(proxy.free_bytes, settings.max_payload_bytes),
        # A quarter is left for bodies on disk, and for what nginx itself has open.
        connections=min(MOST_CONNECTIONS, proxy.descriptors * 3 // 4),
        stop_seconds=max(int(settings.stop_seconds), 1),
        keep_seconds=KEEP_ALIVE_SECONDS if serving else 0,
        refusals=_refusals(settings),
        rest_upstream=serving_api.rest_upstream(serving.instances) if serving else "",
        rest_location=serving_api.rest_location(sampling) if serving and serving.publishes_rest else "",
        grpc_upstream=serving_api.grpc_upstream(gates) if proxy.grpc else "",
        grpc_server=_grpc_server(proxy, limits, workspace),
        trace_maps=traces.maps(sampling) if sampling else "",
        captured=fast_path.captured(capture) if capture else "",
        fast_maps=fast_path.maps(proxy.fast, sampling, capture) if proxy.fast else "",
        fast_location=fast_path.location() if proxy.fast else "",
        # NOTE: an error_page of a location's own hides those of the server block, so they are repeated.
        entrance="\n            ".join((fast_path.ENTRANCE, *_error_pages())) if proxy.fast else "",
    )


def _grpc_server(proxy: ProxyConfig, limits: ProxyLimits, workspace: Workspace) -> str:
    if proxy.grpc is None:
        return ""
    has_models = proxy.serving is None or bool(proxy.serving.instances)
    logs = (f"access_log {workspace.requests} grpc_requests;", access_log.grpc_directive(workspace.access))
    return serving_api.grpc_server(proxy.grpc, limits, logs, has_models=has_models)


def _to_workers(upstream: str, marks: Iterable[str], again: str = "", sent: str = "") -> str:
    """Sends a request to the workers, with the id under which they note that they begin it.

    ``marks`` are headers that say what else they do with it.
    """
    lines = (
        f"proxy_pass http://{upstream};",
        "proxy_next_upstream off;",
        # NOTE: headers of a location's own hide those of the server block, so they are repeated.
        *PROXY_HEADERS,
        f'proxy_set_header {NGINX_ID} "$request_id $msec";',
        f'proxy_set_header {SENT_AGAIN} "{again}";',
        f'proxy_set_header {HAD_MODEL_SERVER} "{sent}";',
        *marks,
    )
    return "\n            ".join(lines)


def _chosen_id() -> str:
    """The maps by which nginx chooses a request's id as `chosen_id` does; it makes new ones, too."""
    own_id, inference_id = nginx_variable(REQUEST_ID), nginx_variable(INFERENCE_ID)
    # PERF: an exact "" spares most requests the patterns, here and in the maps below.
    return f"""map {own_id} $id_without_inference {{
        default $request_id;
        "" $request_id;
        "~^{PLAIN_ID}$" {own_id};
    }}
    map {inference_id} $chosen_id {{
        default $id_without_inference;
        "" $id_without_inference;
        "~^{PLAIN_ID}$" {inference_id};
    }}"""


def _asked_model() -> str:
    """The maps that say for which model and version a request is, for its line; ``?`` is not a name."""
    attributes = nginx_variable(CUSTOM_ATTRIBUTES)
    return f"""map {attributes} $asked_model {{
        default "-";
        "" "-";
        "~(?:^|,) *{MODEL_NAME.key}=(?<asked_name>{MODEL_NAME.certain}) *(?:,|$)" $asked_name;
        "~{MODEL_NAME.key}" "?";
    }}
    map {attributes} $asked_version {{
        default "-";
        "" "-";
        "~(?:^|,) *{MODEL_VERSION.key}=(?<asked_number>{MODEL_VERSION.certain}) *(?:,|$)" $asked_number;
        "~{MODEL_VERSION.key}|{MODEL_LABEL.key}" "?";
    }}"""


def _user_line() -> str:
    """As root nginx would change to a user who can't open the workspace."""
    if os.geteuid() != 0:
        return ""
    return f"user {pwd.getpwuid(0).pw_name};"


def _refusals(settings: Settings) -> str:
    """``error_page`` lines and the internal locations they lead to.

    A named location would answer a malformed URI in HTML; an internal location does not.
    """
    lines = _error_pages()
    for status, text in REFUSALS.items():
        lines.append(_refusal(f"{status}", status, text.replace("$limit", str(settings.max_payload_mb))))
    too_late = not_answered(MODEL_SERVER, settings.request_timeout_seconds)
    lines.append(_refusal("model-server-504", 504, too_late))
    retry = f"{ID_HEADER} add_header Retry-After {UPLOAD_RETRY_SECONDS} always; "
    lines.append(_refusal("uploads", 503, TOO_MANY_UPLOADS, retry))
    return "\n        ".join(lines)


def _refusal(name: str, status: int, text: str, header: str = "") -> str:
    body = error_body(text).decode().replace("'", "\\'")
    return (
        f"location = /.refused/{name} {{ internal; lingering_close on; {header}return {status} '{body}'; }}"
    )


def _error_pages() -> list[str]:
    lines = [f"error_page {status} /.refused/{status};" for status in REFUSALS]
    lines.append("error_page 502 = @again;")
    lines.append(uploads.ERROR_PAGE)
    return lines + [f"error_page {own} ={status} /.refused/{status};" for own, status in REPLACED.items()]
