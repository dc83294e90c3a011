"""The configuration of nginx, filled into its templates. nginx routes and buffers, Python decides.

`nginx.conf.j2` is the whole file, with `grpc.conf.j2`; `one_archive.conf.j2`, `many_models.conf.j2` and
`pipeline.conf.j2` extend it by the routes to models, with the pieces of `macros.conf.j2`.
"""

import math
import os
import pwd
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from msgspec import Struct

from tfs_proxy.observe import traces
from tfs_proxy.observe.logs import access
from tfs_proxy.observe.logs.reasons import own_reason
from tfs_proxy.observe.request_counts import NGINX_FORMAT, NGINX_GRPC_FORMAT
from tfs_proxy.observe.request_record import PLAIN_ID
from tfs_proxy.observe.traces import is_divided, marked_share
from tfs_proxy.run.guarded import guard_of
from tfs_proxy.run.nginx import callers, doors, fast_path, many_models
from tfs_proxy.run.nginx.many_models import MultiModelRoutes
from tfs_proxy.settings.parsers import AccessLog
from tfs_proxy.settings.rows import LONGER_SECONDS, STALLED_SECONDS
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values import attributes, names
from tfs_proxy.values.deployment import Deployment, TraceSampling
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.layout import Workspace
from tfs_proxy.wire import guard, header_names, routes
from tfs_proxy.wire.error_body import (
    HEADERS_TOO_LARGE,
    MODEL_SERVER,
    NO_ENDPOINT,
    NO_MODEL_SERVER,
    TO_ENDPOINTS,
    TOO_LATE,
    TOO_MANY_UPLOADS,
    UNKNOWN_HTTP_VERSION,
    UNKNOWN_TRANSFER_CODING,
    UPLOAD_RETRY_SECONDS,
    body_too_large,
    error_body,
    not_answered,
)
from tfs_proxy.wire.grpc_codes import REFUSALS as GRPC_REFUSALS
from tfs_proxy.wire.grpc_codes import GrpcCode

KEEP_ALIVE_SECONDS = 75

MOST_CONNECTIONS = 8192
CONNECTIONS_A_CORE = 2048
"""nginx takes 0.43 KB of memory for each possible connection, whether it comes or not."""

MOST_PROCESSES = 8
KEPT_CONNECTIONS = 256
"""Idle connections to workers, and to model servers, that all processes of nginx keep together."""

HTTP2_DIRECTIVE = (1, 25, 1)
"""The first nginx that has ``http2 on``; later ones warn of ``listen ... http2``."""

TOO_MANY_UPLOADS_STATUS = 590
"""A status that nothing else uses, between ``limit_conn`` and the answer to the client."""

DISK_SHARE = 0.8
"""Part of the free disk for bodies; the rest is for answers to slow readers."""

MOST_LARGE_BODIES = 65_535
"""nginx's own limit of the number."""

NO_CERTIFICATE = "a client certificate is needed, signed by a CA in TFS_PROXY_TLS_CLIENT_CA"
NO_TLS = "this port takes TLS alone: send the request to https://"

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
    426: "no WebSocket is served here: send each message as a request",
    429: "too many requests",
    431: HEADERS_TOO_LARGE,
    500: "internal error of nginx",
    501: UNKNOWN_TRANSFER_CODING,
    503: "not available",
    504: "no answer in time",
    505: UNKNOWN_HTTP_VERSION,
}

ERROR_PAGES: Mapping[int, str] = {
    **{status: f"/.refused/{status}" for status in REFUSALS},
    500: "= /.refused/500$large_body",
    TOO_MANY_UPLOADS_STATUS: "=503 /.refused/uploads",
    # nginx's own status numbers.
    494: "=431 /.refused/431",
    495: "=403 /.refused/certificate",
    497: "=400 /.refused/plain",
}
ERROR_PAGES_OF_MODEL_SERVERS: Mapping[int, str] = {
    **{status: ERROR_PAGES[status] for status in (408, 413, TOO_MANY_UPLOADS_STATUS)},
    504: "/.refused/model-server-504",
}

KINDS = (
    ("one_archive.conf.j2", "= @again"),
    ("many_models.conf.j2", "/.refused/502"),
    ("pipeline.conf.j2", "/.refused/503"),
)
"""Template of each kind of run, and what answers if the connection to a worker or the control API breaks."""

NO_ROOM = "the body finds no room below TFS_PROXY_HOME, where large ones wait: mount a larger disk"


class ProxyConfig(Struct, frozen=True):
    """The addresses on which nginx listens, and those to which it sends requests."""

    listen: str
    """Address of the HTTP port."""

    web: tuple[str, ...]
    """Addresses of the workers of one archive."""

    control_socket: Path
    """Path of the control API's unix socket."""

    grpc: tuple[str, ...] = ()
    """Addresses of the gRPC port; none if gRPC is not published."""

    serving: Deployment | None = None
    """Deployment of one archive to send requests to; None until everything is ready."""

    kind: int = routes.ONE_ARCHIVE
    """Column of `Route.answered_by`."""

    multi_model: MultiModelRoutes | None = None
    """Routes to models that come and go; None where none do."""

    free_bytes: int = 0
    """Free bytes of the disk on which bodies wait."""

    connections: int = MOST_CONNECTIONS
    """Most connections at once in all processes, those to workers and model servers among them."""

    processes: int = 1
    """Number of nginx's processes."""

    version: tuple[int, ...] = (0,)
    """Version of nginx; (0,) if it is unknown."""

    also_listen: tuple[str, ...] = ()
    """Further addresses with all that ``listen`` has."""

    keys: callers.Keys | None = None
    """Keys of callers; None if requests need none."""

    @property
    def kept(self) -> int:
        """Number of idle connections to workers, and to model servers, that each process of nginx keeps."""
        return max(KEPT_CONNECTIONS // self.processes, 1)

    @property
    def fast_model(self) -> str | None:
        """The default model if requests may bypass the workers; else None."""
        serving = self.serving
        if serving is None or not fast_path.suits(serving):
            return None
        # A flag may give a model any name.
        return serving.default_model if names.is_model_name(serving.default_model) else None


def find() -> str | None:
    """The nginx program, even if a user's PATH has no sbin; None if it is not installed."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/bin")


def program(settings: Settings) -> str | None:
    """The nginx program, if the settings want it in front of the workers and it is installed.

    Raises SettingsError if keys or TLS need it.
    """
    found = find() if settings.nginx else None
    if found is None and settings.secured:
        raise SettingsError(
            f"{next(iter(settings.secured))} needs nginx: install it, and don't set TFS_PROXY_NGINX=false."
        )
    return found


def most_connections(cores: int, descriptors: int) -> int:
    """Most connections of nginx on a machine of so many cores, with so many open descriptors."""
    # A quarter is left for bodies on disk, and for nginx's own files.
    return min(MOST_CONNECTIONS, CONNECTIONS_A_CORE * max(cores, 2), descriptors * 3 // 4)


def answer_seconds(settings: Settings) -> int:
    """Seconds that nginx waits for more of an answer: longer than programs that know the reason."""
    of_script = math.ceil(settings.script_timeout_seconds) + LONGER_SECONDS
    return max(settings.nginx_proxy_read_timeout_seconds, settings.gunicorn_timeout_seconds, of_script)


def config(proxy: ProxyConfig, settings: Settings, workspace: Workspace) -> str:
    template, bad_gateway = KINDS[proxy.kind]
    values = {**_of_all(proxy, settings, workspace), "bad_gateway": bad_gateway}
    # Macros see what they are made with, not what is rendered.
    values["on"] = _templates().get_template("macros.conf.j2").make_module(values)
    return _templates().get_template(template).render(values)


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader(__package__, ""),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - this is not HTML
    )
    templates.filters["variable"] = header_names.nginx_variable
    templates.filters["reason"] = lambda text: access.quoted_reason(own_reason(text))
    templates.filters["error_body"] = lambda text, **more: (
        error_body(text, **more).decode().replace("'", "\\'")
    )
    return templates


def _names_of_all() -> dict[str, Any]:
    return {
        "headers": _table(header_names),
        "routes": _table(routes),
        "attributes": _table(attributes),
        "gates": _table(many_models),
        "door_pattern": doors.pattern,
        "key_needed": callers.REFUSED,
        "guarded_request": guard.NGINX_KEY,
        "management_paths": guard.MANAGEMENT,
        "page_methods": guard.METHODS,
        "request_line": NGINX_FORMAT,
        "call_line": NGINX_GRPC_FORMAT,
        "words_of_request": access.NGINX_PREFIX,
        "words_of_call": access.GRPC_PREFIX,
        "loaded_name": names.LOADED_MODEL,
        "served_name": names.SERVED_MODEL,
        "no_endpoint": NO_ENDPOINT,
        "to_endpoints": TO_ENDPOINTS,
        "buffer_mb": fast_path.MAX_BODY_MB,
        "small_length": fast_path.SMALL,
        "only_object": fast_path.only_object(),
    }


def _of_all(proxy: ProxyConfig, settings: Settings, workspace: Workspace) -> dict[str, Any]:
    many = proxy.multi_model
    serving = proxy.serving
    served = many or serving
    sampling = many.traces if many else serving and serving.observation.traces
    rest_api = settings.rest_api if many else serving is not None and serving.publishes_rest
    has_models = serving is None or bool(serving.instances)  # a script model has no API of TF Serving
    return {
        **_names_of_all(),
        "proxy": proxy,
        "settings": settings,
        "workspace": workspace,
        "own_doors": doors.values(proxy.kind, settings, rest_api=rest_api, grpc_models=has_models),
        "guard": guard_of(settings),
        "user": pwd.getpwuid(0).pw_name if os.geteuid() == 0 else None,  # else it becomes one who may not
        "log_level": settings.nginx_loglevel.replace("debug", "info"),  # it would log requests' headers
        "logs_all": int(settings.access_log.mode not in {AccessLog.OFF, AccessLog.ERRORS}),
        "plain_id": PLAIN_ID,
        "read_seconds": answer_seconds(settings),
        "stop_seconds": max(math.ceil(settings.stop_seconds), 1),
        "stalled_seconds": STALLED_SECONDS,
        "keep_seconds": KEEP_ALIVE_SECONDS if served or proxy.kind == routes.PIPELINE else 0,
        "most_large_bodies": most_large_bodies(proxy.free_bytes, settings.max_payload_bytes),
        "uploads_status": TOO_MANY_UPLOADS_STATUS,
        "too_many_uploads": TOO_MANY_UPLOADS,
        "upload_retry_seconds": UPLOAD_RETRY_SECONDS,
        "refusals": {**_refusals(settings), **(many_models.refusals(many) if many else {})},
        "error_pages_of_all": ERROR_PAGES,
        "error_pages_of_model_servers": ERROR_PAGES_OF_MODEL_SERVERS,
        "traces": _traces(sampling) if sampling else None,
        "model_servers": [f"{each.host}:{each.rest_port}" for each in (served.instances if served else ())],
        "fast_answers": fast_path.ACCEPTS if many or proxy.fast_model else None,
        "rest_api": rest_api,
        "many": many_models.values(many, settings) if many else None,
        "grpc": _grpc(proxy, settings, workspace) if proxy.grpc else None,
    }


def _table(module: ModuleType) -> Mapping[str, object]:
    """The constants of a module that is a table of names."""
    return {name: value for name, value in vars(module).items() if name.isupper()}


def _refusals(settings: Settings) -> Mapping[str, tuple[int, str]]:
    """nginx's own refusals: status and text by the name of the location."""
    limit = str(settings.payload_limit_mb)
    return {
        **{str(status): (status, text.replace("$limit", limit)) for status, text in REFUSALS.items()},
        # nginx's own 500 for a request with a body that it stores: it could not.
        "5001": (507, NO_ROOM),
        "certificate": (403, NO_CERTIFICATE),
        "plain": (400, NO_TLS),
        "admin": (403, callers.NOT_ADMIN),
        "model-server-504": (504, not_answered(MODEL_SERVER, settings.request_timeout_seconds)),
        **{verdict: (403, text) for verdict, text in guard.REFUSALS.items()},
    }


def _grpc(proxy: ProxyConfig, settings: Settings, workspace: Workspace) -> Mapping[str, Any]:
    """The values that publish gRPC."""
    texts = {
        GrpcCode.INVALID_ARGUMENT: "the request is malformed",
        GrpcCode.DEADLINE_EXCEEDED: f"no answer within {answer_seconds(settings)} seconds",
        GrpcCode.RESOURCE_EXHAUSTED: f"the message is larger than {settings.payload_limit_mb} MB, "
        "the limit that SAGEMAKER_MAX_PAYLOAD_IN_MB sets",
        GrpcCode.UNIMPLEMENTED: "not published here: only tensorflow.serving.PredictionService, "
        "GetModelStatus of tensorflow.serving.ModelService, inference.GRPCInferenceService, "
        "grpc.health.v1.Health and reflection can be",
        GrpcCode.UNAVAILABLE: NO_MODEL_SERVER,
        GrpcCode.UNAUTHENTICATED: NO_CERTIFICATE,
    }
    return {
        "has_http2_directive": proxy.version >= HTTP2_DIRECTIVE,
        "model_servers": [f"unix:{workspace.grpc_gate(each)}" for each in range(settings.instance_count)],
        "translator": f"unix:{workspace.translator_socket}" if settings.publishes_open_inference else None,
        "refusals": [
            *((GRPC_REFUSALS[code], int(code), quote(text, safe=" ,.:")) for code, text in texts.items()),
            ((401,), int(GrpcCode.UNAUTHENTICATED), callers.REFUSED),
        ],
    }


def _traces(sampling: TraceSampling) -> Mapping[str, Any]:
    """Share that is traced of requests without a parent, and patterns of parents."""
    return {
        "percent": f"{100 * marked_share(sampling):.2f}" if is_divided(sampling) else None,
        "rest": int(sampling.share == 1.0),
        "unsampled": int(sampling.parents == "examined"),
        "looks_at_parents": sampling.parents != "ignored",
        "traceparent": traces.header_pattern(),
        "sampled_traceparent": traces.header_pattern(traces.SAMPLED_FLAGS),
        "attributes": traces.attributes_pattern(),
        "sampled_attributes": traces.attributes_pattern(traces.SAMPLED_FLAGS),
    }


def most_large_bodies(free_bytes: int, body_bytes: int) -> int:
    """Number of bodies of ``body_bytes`` that the disk has room for; at least one."""
    return max(1, min(int(free_bytes * DISK_SHARE) // body_bytes, MOST_LARGE_BODIES))
