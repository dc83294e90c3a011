"""The configuration of nginx: pure. nginx routes and buffers, Python decides."""

import math
import os
import pwd
import shutil
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from msgspec import Struct

from tfs_proxy.attributes import MODEL_LABEL, MODEL_NAME, MODEL_VERSION
from tfs_proxy.deployment import Deployment, TraceSampling
from tfs_proxy.layout import Workspace
from tfs_proxy.names import is_model_name
from tfs_proxy.observe.request_counts import NGINX_FORMAT
from tfs_proxy.observe.request_record import PLAIN_ID
from tfs_proxy.observe.routes import SERVED_MODELS
from tfs_proxy.payload.media_types import JSON
from tfs_proxy.setting_rows import LONGER_SECONDS
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor.nginx import (
    access_log,
    fast_path,
    multi_model,
    open_inference,
    refusals,
    serving_api,
    traces,
    uploads,
    workers,
)
from tfs_proxy.supervisor.nginx.multi_model import MultiModelRoutes
from tfs_proxy.supervisor.nginx.serving_api import GrpcEndpoint, ProxyLimits
from tfs_proxy.supervisor.request_counter import NGINX_COUNT
from tfs_proxy.wire.header_names import (
    CUSTOM_ATTRIBUTES,
    INFERENCE_ID,
    REQUEST_ID,
    STAGE_TIMES,
    nginx_variable,
)

KEEP_ALIVE_SECONDS = 75

MOST_CONNECTIONS = 8192
CONNECTIONS_A_CORE = 2048
"""nginx takes 0.43 KB of memory for each connection that may be, whether it comes or not."""

MOST_PROCESSES = 8
KEPT_CONNECTIONS = 256
"""Idle connections to workers, and to model servers, that all processes of nginx keep together."""


class ProxyConfig(Struct, frozen=True):
    """Where nginx listens, and where it sends requests to.

    ``also_listen`` are addresses with all that ``listen`` has. ``grpc`` is None if gRPC is not published,
    ``serving`` until everything is ready. With ``multi_model`` there is no ``serving``, and no ``web``.
    ``free_bytes`` are those of the disk on which bodies wait. nginx may have ``connections`` at once in
    all its ``processes``, and those to workers and model servers count.
    ``counts_requests`` says whether this nginx knows how many requests it has, ``edits_answers`` whether it
    can replace parts of answers.
    """

    listen: str
    web: tuple[str, ...]
    control_socket: Path
    grpc: GrpcEndpoint | None = None
    serving: Deployment | None = None
    multi_model: MultiModelRoutes | None = None
    free_bytes: int = 0
    connections: int = MOST_CONNECTIONS
    processes: int = 1
    counts_requests: bool = True
    edits_answers: bool = True
    also_listen: tuple[str, ...] = ()

    @property
    def kept(self) -> int:
        """How many idle connections to workers, and to model servers, each process of nginx keeps."""
        return max(KEPT_CONNECTIONS // self.processes, 1)

    @property
    def fast(self) -> str | None:
        """The default model if requests may bypass the workers; else None.

        They may without a script, a default Accept and an adaptive limit, which the workers hold.
        """
        serving = self.serving
        if serving is not None and serving.adaptive_limit_seconds is not None:
            return None
        if serving is None or serving.script is not None or serving.default_accept not in {None, JSON}:
            return None
        if not is_model_name(serving.default_model):  # a flag may give a model any name
            return None
        return serving.default_model


def find() -> str | None:
    """The nginx program, even if a user's PATH has no sbin; None if it is not installed."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/bin")


def most_connections(cores: int, descriptors: int) -> int:
    """How many connections nginx may have on a machine of so many cores, with so many open descriptors."""
    # A quarter is left for bodies on disk, and for what nginx itself has open.
    return min(MOST_CONNECTIONS, CONNECTIONS_A_CORE * max(cores, 2), descriptors * 3 // 4)


def answer_seconds(settings: Settings) -> int:
    """How long nginx waits for an answer, or for more of it: longer than who can say why there is none."""
    of_script = math.ceil(settings.script_timeout_seconds) + LONGER_SECONDS
    return max(settings.nginx_proxy_read_timeout_seconds, settings.gunicorn_timeout_seconds, of_script)


def config(proxy: ProxyConfig, settings: Settings, workspace: Workspace) -> str:
    """The whole nginx.conf."""
    template = Template(files(__package__).joinpath("nginx.conf.template").read_text())
    limits = ProxyLimits(settings.max_payload_mb, answer_seconds(settings))
    served = proxy.multi_model or proxy.serving
    sampling = served.traces if served else None
    capture = served.capture if served else None
    marks = (*traces.headers(sampling), *((fast_path.CAPTURED_HEADER,) if capture else ()))
    routing = _multi_model(proxy, settings, workspace, marks) or _one_archive(
        proxy, settings, workspace, marks
    )
    return template.substitute(
        user=_user_line(),
        root=workspace.root,
        home=workspace.nginx,
        requests=workspace.requests,
        request_format=NGINX_FORMAT,
        listen="\n        ".join(f"listen {address};" for address in (proxy.listen, *proxy.also_listen)),
        proxy_headers="\n        ".join((*workers.PROXY_HEADERS, *traces.headers(sampling))),
        chosen_id=_chosen_id(),
        asked_version=_asked_version(),
        id_header=refusals.ID_HEADER,
        access_log=access_log.directives(settings, workspace.access),
        id_header_name=REQUEST_ID,
        stages_header=STAGE_TIMES,
        control_socket=proxy.control_socket,
        in_flight="$connections_writing" if proxy.counts_requests else '""',
        in_flight_header=NGINX_COUNT,
        log_level=access_log.error_level(settings.nginx_loglevel),
        **_limits(proxy, settings, limits),
        keep_seconds=KEEP_ALIVE_SECONDS if served else 0,
        grpc_server=_grpc_server(proxy, settings, workspace),
        trace_maps=traces.maps(sampling) if sampling else "",
        captured=fast_path.captured(capture) if capture else "",
        upstreams_and_maps=routing.upstreams_and_maps,
        locations=routing.locations,
        refusals="\n        ".join(refusals.directives(settings, routing.bad_gateway)),
    )


def _limits(proxy: ProxyConfig, settings: Settings, limits: ProxyLimits) -> Mapping[str, object]:
    """What requests and connections may take, by the names in the template."""
    return {
        "max_payload_mb": limits.message_mb,
        "max_fast_body_mb": fast_path.MAX_BODY_MB,
        "read_seconds": limits.read_seconds,
        "stalled_seconds": uploads.STALLED_SECONDS,
        "large_bodies": uploads.limit(fast_path.MAX_BODY_MB),
        "most_large_bodies": uploads.maximum(proxy.free_bytes, settings.max_payload_bytes),
        "connections": proxy.connections // proxy.processes,
        "processes": proxy.processes,
        "stop_seconds": max(int(settings.stop_seconds), 1),
    }


class Routing(Struct, frozen=True):
    """Where requests go, as parts of the http and the server block, and where a 502 of nginx's own leads."""

    upstreams_and_maps: str
    locations: str
    bad_gateway: str


def _one_archive(
    proxy: ProxyConfig, settings: Settings, workspace: Workspace, marks: Sequence[str]
) -> Routing:
    serving, fast = proxy.serving, proxy.fast
    sampling, line_ends = serving.traces if serving else None, _line_ends(proxy, settings)
    gates = [workspace.grpc_gate(index) for index in range(settings.instance_count)]
    upstreams_and_maps = (
        workers.upstreams(proxy.web, proxy.kept),
        _asked_model(),
        serving_api.rest_upstream(serving.instances, proxy.kept) if serving else "",
        serving_api.grpc_upstream(gates, proxy.kept) if proxy.grpc else "",
        serving_api.router_upstream(workspace.grpc_router_socket, proxy.kept) if proxy.grpc else "",
        fast_path.maps(fast, sampling, serving.capture, line_ends) if serving and fast else "",
    )
    pages = refusals.error_pages({502: workers.AGAIN})
    locations = (
        workers.locations("\n            ".join((fast_path.ENTRANCE, *pages)) if fast else "", marks),
        fast_path.location(line_ends) if fast else "",
        *(open_inference.of_one_archive() if settings.publishes_open_inference else ()),
        *(
            _rest(sampling, marks, is_limited=serving.adaptive_limit_seconds is not None)
            if serving and serving.publishes_rest
            else ()
        ),
    )
    return Routing("\n\n    ".join(upstreams_and_maps), "\n\n        ".join(locations), workers.AGAIN)


def _rest(sampling: TraceSampling | None, marks: Sequence[str], *, is_limited: bool) -> Iterator[str]:
    """TF Serving's REST API, with KServe's list of models."""
    yield open_inference.control_api(f"= {SERVED_MODELS}")
    yield open_inference.location(f'~* "{open_inference.STATUS_OF_MODEL}"', workers.directives("web", marks))
    if not is_limited:  # else the workers, which pass requests on, hold the limit
        yield serving_api.rest_location(sampling)


def _multi_model(
    proxy: ProxyConfig, settings: Settings, workspace: Workspace, marks: Sequence[str]
) -> Routing | None:
    routes = proxy.multi_model
    if routes is None:
        return None
    line_ends = _line_ends(proxy, settings)
    upstreams_and_maps = (
        multi_model.upstreams(proxy.control_socket, routes, proxy.kept),
        multi_model.maps(routes, line_ends),
        serving_api.grpc_upstream([workspace.grpc_router_socket], proxy.kept) if proxy.grpc else "",
    )
    return Routing(
        "\n\n    ".join(upstreams_and_maps),
        multi_model.locations(routes, settings, marks, line_ends),
        multi_model.BAD_GATEWAY_PAGE,
    )


def _line_ends(proxy: ProxyConfig, settings: Settings) -> fast_path.LineEnds:
    return fast_path.LineEnds(settings.batch or settings.default_accept == JSON, proxy.edits_answers)


def _grpc_server(proxy: ProxyConfig, settings: Settings, workspace: Workspace) -> str:
    if proxy.grpc is None:
        return ""
    waits_seconds = 0 if proxy.multi_model is None else multi_model.wait_seconds(settings)
    limits = ProxyLimits(settings.max_payload_mb, answer_seconds(settings) + waits_seconds)
    passed: list[str] = []
    if proxy.serving is None or proxy.serving.instances:  # a script model has no API of TF Serving
        passed += serving_api.passed_to_models()
    router = "inferences" if proxy.multi_model is None else "predictions"
    passed += serving_api.passed_to_router(router, open_inference=settings.publishes_open_inference)
    logs = (f"access_log {workspace.requests} grpc_requests;", access_log.grpc_directive(workspace.access))
    return serving_api.grpc_server(proxy.grpc, limits, logs, passed)


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
    """The map that says for which model a request is, for its line; ``?`` is not a name."""
    return f"""map {nginx_variable(CUSTOM_ATTRIBUTES)} $asked_model {{
        default "-";
        "" "-";
        "~(?:^|,) *{MODEL_NAME.key}=(?<asked_name>{MODEL_NAME.certain}) *(?:,|$)" $asked_name;
        "~{MODEL_NAME.key}" "?";
    }}"""


def _asked_version() -> str:
    return f"""map {nginx_variable(CUSTOM_ATTRIBUTES)} $asked_version {{
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
