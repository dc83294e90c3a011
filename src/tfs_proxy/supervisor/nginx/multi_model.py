"""The parts of nginx.conf that send each request to the model that it names, while models come and go: pure.

The workers of a model listen on a unix socket of their own, and its gate, a link named after the model, leads
there while it is ready: so no load and no unload reloads nginx. A request that finds no gate waits at the
control API, whose answer is the client's unless it sends the request on (`SENDS_ON`).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from tfs_proxy import names
from tfs_proxy.deployment import CaptureOptions, Instance, TraceSampling
from tfs_proxy.observe.routes import INVOCATIONS, OPENAPI, SERVED_MODELS
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor.nginx import (
    fast_path,
    kept_connections,
    open_inference,
    refusals,
    serving_api,
    workers,
)
from tfs_proxy.supervisor.nginx.open_inference import location
from tfs_proxy.wire.error_body import WORKER_DIED, not_reached
from tfs_proxy.wire.header_names import SERVED_NAME, TARGET_MODEL, nginx_variable

GATES, SERVED_GATES, ALL_GATES = "m", "v", "o"
"""The folders of the gates below the run's workspace, which is nginx's working directory.

The first has them by the names of loaded models, the second by what the model server calls models, the third
by both.
"""

FAST = "f"
"""The folder with a file for each model whose requests may go straight to a model server."""

SENDS_ON: Mapping[str, str] = {"X-Accel-Redirect": "@gate"}
"""Headers with which the control API says that the model is ready; nginx keeps them for itself."""

PAGE = "/console/"
"""What the page to try the models is made of; the control API has it."""

MAX_SEGMENTS = 6
"""How many names a path in X-Amzn-SageMaker-Target-Model has at most."""

MARGIN_SECONDS = 5
"""What nginx waits longer than the control API does."""

# NOTE: to -e and -f a socket is nothing; it is executable, unless someone has changed its mode.
_UNLESS_GATE = "if (!-x $gate) { return 418; }"

_REFUSED = "400 404 429 500 501"
"""What the model server may say of a lack of memory, too, which is a 507 here."""

BAD_GATEWAY_PAGE = "/.refused/502"
_NO_TARGET, _ODD_TARGET = "-", "?"
_SEGMENT = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_HOW_TO_CALL = "no model is named: load one by POST to /models and send requests to /models/NAME/invoke"
_WITHOUT_HEADER = f"{_HOW_TO_CALL}, or serve archives with --multi-model and name one in {TARGET_MODEL}"
_WITH_HEADER = f"{_HOW_TO_CALL}, or name an archive in {TARGET_MODEL}"
_TARGET_NEEDED = (
    f"{TARGET_MODEL}: the path of an archive is needed, such as team/a{names.ARCHIVE_ENDING}: at most "
    f"{MAX_SEGMENTS} names of letters, digits, '.', '_' and '-' that begin with a letter or a digit, and at "
    f"most {names.LOADED_MODEL_CHARACTERS} characters for the model's name, in which {names.SLASH_IN_NAME} "
    "stands for each slash"
)


class MultiModelRoutes(Struct, frozen=True):
    """What nginx must know of a run whose models come and go.

    A load or an unload may take ``load_seconds``. ``takes_target_model`` says whether requests to
    ``/invocations`` may name an archive. ``instances`` are the model servers of all models, if all have the
    same: nginx sends them what needs no conversion. ``common`` are the addresses of the common workers.
    ``traces`` and ``capture`` are those of all models.
    """

    load_seconds: float
    takes_target_model: bool = False
    traces: TraceSampling | None = None
    capture: CaptureOptions | None = None
    instances: Sequence[Instance] = ()
    common: Sequence[str] = ()


def upstreams(control_socket: Path, routes: MultiModelRoutes, kept: int) -> str:
    """For the http block: the control API over new connections, since no load may be sent twice."""
    control_api = f"upstream control_api_anew {{ server unix:{control_socket} max_fails=0; }}"
    model_servers = serving_api.rest_upstream(routes.instances, kept)
    return "\n\n    ".join((control_api, model_servers, kept_connections.upstreams(routes.common, kept)))


def maps(routes: MultiModelRoutes, line_ends: fast_path.LineEnds) -> str:
    """Which model a request is for, for the http block; ``-`` is none, ``?`` is not a name."""
    fast = "$asked_model", routes.traces, routes.capture, line_ends
    return f"""{_target_model(routes)}
    map $request_uri $asked_model {{
        default {_NO_TARGET};
        "~^/models/(?<invoked_model>{names.LOADED_MODEL})/invoke(?:\\?|\\z)" $invoked_model;
        "~*^/v1/models/(?<served_model>{names.SERVED_MODEL})(?:[/:?]|\\z)" $served_model;
        "~^/v2/models/(?<open_model>{names.SERVED_MODEL})(?:[/?]|\\z)" $open_model;
        "~^{INVOCATIONS}(?:\\?|\\z)" $target_model;
    }}
    {kept_connections.maps(routes.common)}
    {fast_path.maps(*fast, only_default=True) if routes.instances else ""}"""


def _target_model(routes: MultiModelRoutes) -> str:
    if not routes.takes_target_model:
        return f'map "" $target_model {{ default {_NO_TARGET}; }}'
    lines = [f'"~{pattern}" {name};' for pattern, name in target_patterns()]
    return "\n        ".join(
        (
            f"map {nginx_variable(TARGET_MODEL)} $target_model {{",
            f'default "{_ODD_TARGET}";',
            f'"" {_NO_TARGET};',
            *lines,
            "}",
        )
    )


def target_patterns() -> Iterator[tuple[str, str]]:
    """The paths of archives, and for each the model's name in nginx's variables."""
    for count in range(1, MAX_SEGMENTS + 1):
        numbers = range(1, count + 1)
        longer_by = (count - 1) * (len(names.SLASH_IN_NAME) - len("/"))  # than the path is the name
        most = names.LOADED_MODEL_CHARACTERS - longer_by + len(names.ARCHIVE_ENDING)
        segments = "/".join(f"(?<segment{number}>{_SEGMENT})" for number in numbers)
        suffix = names.ARCHIVE_ENDING.replace(".", r"\.")
        name = names.SLASH_IN_NAME.join(f"${{segment{number}}}" for number in numbers)
        yield rf"^/?(?=.{{1,{most}}}\z){segments}{suffix}\z", f'"{name}"'


def locations(
    routes: MultiModelRoutes, settings: Settings, marks: Sequence[str], line_ends: fast_path.LineEnds
) -> str:
    """For the server block; all paths that are not here are 404.

    ``marks`` are headers that say what workers do besides answering.
    """
    loaded, served = (f"(?<model>{pattern})" for pattern in (names.LOADED_MODEL, names.SERVED_MODEL))
    chosen = kept_connections.choice(routes.common)
    parts = (
        kept_connections.GATE_FOLDER,
        _management("= /models", "/models", routes),
        _management(f'~ "^/models/{loaded}\\z"', "/models/$model", routes),
        location(f"= {INVOCATIONS}", *_target(), *_enter(routes, marks)),
        location(f'~ "^/models/{loaded}/invoke\\z"', *_enter(routes, marks)),
        *(_open_inference(routes, served, marks) if settings.publishes_open_inference else ()),
        *_status(routes, settings, served, marks),
        location(f'~* "^/v1/models/{served}(?:[/:].*)?\\z"', *_serving_api(routes, settings, marks)),
        location("@gate", *chosen, _to_gate(marks), *refusals.error_pages({502: workers.AGAIN})),
        _again(marks),
        _wait(settings),
        *(_fast(marks, line_ends) if routes.instances else ()),
        "location / { return 404; }",
        *_refusals(routes),
    )
    return "\n\n        ".join(parts)


def _open_inference(routes: MultiModelRoutes, served: str, marks: Sequence[str]) -> Iterator[str]:
    """The Open Inference Protocol: the server's share is the control API's, a model's that of its workers."""
    yield from open_inference.locations()
    pattern = open_inference.repository(names.LOADED_MODEL)
    yield _management(pattern, "/v2/repository/$repository_path", routes)
    lines = _by_served_name(routes, ALL_GATES, "reachable")
    yield location(f'~ "^/v2/models/{served}(?:/.*)?\\z"', *lines, *_to_workers(marks))


def _status(routes: MultiModelRoutes, settings: Settings, served: str, marks: Sequence[str]) -> Iterator[str]:
    """What KServe's clients look at: the server, its models, and the status of one."""
    yield open_inference.control_api("= /")
    yield open_inference.control_api(PAGE)
    yield open_inference.control_api(f"= {OPENAPI}")
    if settings.rest_api:
        yield open_inference.control_api(f"= {SERVED_MODELS}")
    lines = _by_served_name(routes, SERVED_GATES, "served")
    yield location(f'~* "^/v1/models/{served}\\z"', *lines, *_to_workers(marks))


def _management(pattern: str, path: str, routes: MultiModelRoutes) -> str:
    """``/models``: a client that hangs up does not stop a load."""
    others = {413: open_inference.TOO_LARGE, 502: BAD_GATEWAY_PAGE, 504: "/.refused/models-504"}
    return location(
        pattern,
        f"client_max_body_size {open_inference.MAX_REQUEST_KB}k;",
        "proxy_ignore_client_abort on;",
        f"proxy_read_timeout {math.ceil(routes.load_seconds) + MARGIN_SECONDS}s;",
        f"proxy_pass http://control_api_anew{path}$is_args$args;",
        *refusals.error_pages(others),
    )


def _target() -> Iterator[str]:
    """The model that a header names."""
    yield f'if ($target_model = "{_NO_TARGET}") {{ rewrite ^ /.refused/no-model last; }}'
    yield f'if ($target_model = "{_ODD_TARGET}") {{ rewrite ^ /.refused/target-model last; }}'
    yield "set $model $target_model;"


def _enter(routes: MultiModelRoutes, marks: Sequence[str]) -> Iterator[str]:
    """To the model's gate, or past it; without one it waits, and nginx does not log that it can't connect."""
    yield f"set $path_at_gate {INVOCATIONS}$is_args$args;"
    yield f"set $gate {GATES}/$model.sock;"
    yield "set $readiness /models/$model/ready;"
    others = {502: workers.AGAIN, 418: "= @wait"}
    if routes.instances:
        yield "set $way $fast;"
        yield f"if (!-f {FAST}/$model) {{ set $way 0; }}"
        yield "if ($way) { return 420; }"
        others[420] = "= @fast"
    yield from kept_connections.choice(routes.common)
    yield _UNLESS_GATE
    yield _to_gate(marks)
    yield from refusals.error_pages(others)


def _serving_api(routes: MultiModelRoutes, settings: Settings, marks: Sequence[str]) -> Iterator[str]:
    """TF Serving's REST API: of the model server of all models, else by the workers of the model."""
    yield from _by_served_name(routes, SERVED_GATES, "served")
    if routes.instances and settings.rest_api:
        yield serving_api.to_model_servers(routes.traces, to_python=420)
        yield "error_page 418 = @wait;"
        yield "error_page 404 420 = @gate;"
        yield "error_page 502 = @gate_after;"
    else:
        yield from _to_workers(marks)


def _by_served_name(routes: MultiModelRoutes, gates: str, readiness: str) -> Iterator[str]:
    """The way to the model that a path names, as long as its gate is in this folder."""
    yield "set $path_at_gate $request_uri;"
    yield f"set $gate {gates}/$model.sock;"
    yield f"set $readiness /{readiness}/$model/ready;"
    yield from kept_connections.choice(routes.common)
    yield _UNLESS_GATE


def _to_workers(marks: Sequence[str]) -> Iterator[str]:
    yield _to_gate(marks)
    yield from refusals.error_pages({502: workers.AGAIN, 418: "= @wait"})


def _fast(marks: Sequence[str], line_ends: fast_path.LineEnds) -> Iterator[str]:
    """Straight to a model server, and the way back to the workers."""
    yield fast_path.location(line_ends, "@gate", "@gate_after", _REFUSED)
    yield location("@gate_after", _to_gate(marks, sent="1"), *refusals.error_pages({502: workers.AGAIN}))


def _again(marks: Sequence[str]) -> str:
    """No connection to the gate, or one that ended without an answer.

    In the latter case a worker may have begun the request: only the same model's next worker knows.
    """
    return location(
        "@again",
        'if ($upstream_connect_time = "-") { return 418; }',  # the gate has gone at this moment
        'if ($upstream_connect_time ~ " -$") { return 503; }',  # and once more, after the model was ready
        _to_gate(marks, again="1"),
        *refusals.error_pages({418: "= @wait", 502: "/.refused/worker-died", 503: "/.refused/connections"}),
    )


def wait_seconds(settings: Settings) -> int:
    """How long a request that waits for a load may get no answer."""
    return math.ceil(settings.request_timeout_seconds) + MARGIN_SECONDS


def _wait(settings: Settings) -> str:
    """The control API answers once it knows whether the model is going to be ready."""
    return location(
        "@wait",
        "proxy_pass http://control_api_anew$readiness;",
        "proxy_method GET;",
        "proxy_pass_request_body off;",
        *workers.PROXY_HEADERS,
        'proxy_set_header Content-Length "";',
        f"proxy_read_timeout {wait_seconds(settings)}s;",
    )


def _to_gate(marks: Sequence[str], again: str = "", sent: str = "") -> str:
    # A script's own X-Accel-Redirect would lead to another model.
    served_name = f"proxy_set_header {SERVED_NAME} $model;"
    address = kept_connections.ANEW if again else kept_connections.KEPT
    to_workers = workers.directives(f"{address}$path_at_gate", (*marks, served_name), again=again, sent=sent)
    return f"proxy_ignore_headers X-Accel-Redirect;\n            {to_workers}"


def _refusals(routes: MultiModelRoutes) -> Iterator[str]:
    yield refusals.location("502", 502, not_reached("The control API"))
    yield refusals.location("worker-died", 502, WORKER_DIED)
    yield refusals.location("connections", 503, "the model takes no connections at this moment: try again")
    yield refusals.location("no-model", 404, _WITH_HEADER if routes.takes_target_model else _WITHOUT_HEADER)
    yield refusals.location("target-model", 400, _TARGET_NEEDED)
    yield open_inference.too_large()
    yield refusals.location(
        "models-504",
        504,
        f"not done within {routes.load_seconds:g} seconds: it goes on, and GET /models says what is loaded",
    )
