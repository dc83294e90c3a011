"""Names that nginx and the supervisor share in runs with changing models."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from tfs_proxy.run.nginx import fast_path
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values import names
from tfs_proxy.values.deployment import Deployment, Instance, TraceSampling
from tfs_proxy.values.layout import Workspace
from tfs_proxy.wire.error_body import WORKER_DIED, not_reached
from tfs_proxy.wire.header_names import TARGET_MODEL

# Below the run's workspace, which is nginx's working directory.
GATES = "m"  # the folder of the gates
FAST = "f"  # a link for each model whose requests may go directly to a model server
COMMON_WORKSPACES = "d"  # links to the workspaces of models that common workers serve, by name
COMMON_SOCKET = "common.sock"  # on which common workers accept
# a numbered folder for each stack, and the socket in that
STACKS = "s"
WEB_SOCKET = "web.sock"
NUMBERS = range(500)  # of stacks to which nginx keeps connections; those above are reached by new ones

LOADED = "loaded"
SERVED = "served"
ANY = "sock"
"""Endings of gates: of the name a model is loaded under, of those its model server knows, and of all."""

SENDS_ON: Mapping[str, str] = {"X-Accel-Redirect": "@gate"}
"""Headers with which the control API says that the model is ready; nginx keeps them for itself."""

MARGIN_SECONDS = 5
_MAX_SEGMENTS = 6  # names in a path in X-Amzn-SageMaker-Target-Model
CONTROL_REQUEST_KB = 64  # the largest body of a request that the control API reads
_SEGMENT = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_GOES_ON = "it goes on, and GET /models says what is loaded"
_HOW_TO_CALL = "no model is named: load one by POST to /models and send requests to /models/NAME/invoke"
_WITHOUT_HEADER = f"{_HOW_TO_CALL}, or serve archives with --multi-model and name one in {TARGET_MODEL}"
_WITH_HEADER = f"{_HOW_TO_CALL}, or name an archive in {TARGET_MODEL}"
_TARGET_NEEDED = (
    f"{TARGET_MODEL}: the path of an archive is needed, such as team/a{names.ARCHIVE_ENDING}: at most "
    f"{_MAX_SEGMENTS} names of letters, digits, '.', '_' and '-' that begin with a letter or a digit, and at "
    f"most {names.LOADED_MODEL_CHARACTERS} characters for the model's name, in which {names.SLASH_IN_NAME} "
    "stands for each slash"
)


class MultiModelRoutes(Struct, frozen=True):
    """Values for nginx in a run with changing models.

    A load or an unload may take ``load_seconds``. ``takes_target_model`` is true if requests to
    ``/invocations`` may name an archive. nginx sends ``instances``, the model servers, what needs no
    conversion. ``traces`` are those of all models.
    """

    load_seconds: float
    instances: Sequence[Instance]
    takes_target_model: bool = False
    traces: TraceSampling | None = None


def links_of(name: str, deployment: Deployment, run: Workspace, stack: Workspace) -> Mapping[Path, Path]:
    """The links by which nginx finds the model ``name`` while it is ready, with their targets.

    They lie in the folder of the ``run``. The ``stack`` of the model makes them in this order, and removes
    them in the opposite one. A script has workers of its own in its stack; common ones serve all else.

    ============== ================================ ================ =======================================
    link           made for                         leads to         nginx, if it is there, and if not
    ============== ================================ ================ =======================================
    d/NAME         each name, if workers are common stack's folder   to common workers; to the stack's own
    m/NAME.sock    each name                        workers' socket  names the stack; its requests by /v2 wait
    m/NAME.served  names in the model server        workers' socket  passes requests by /v1; they wait
    m/NAME.loaded  the name that it is loaded as    workers' socket  passes invocations; they wait
    f/NAME         the same, if workers are common  deployment.json  JSON goes to a model server; to workers
                   and JSON needs no conversion
    ============== ================================ ================ =======================================
    """
    names = {name, *deployment.models}
    has_common_workers = deployment.script is None
    socket = run.root / COMMON_SOCKET if has_common_workers else stack.root / WEB_SOCKET
    gates = [f"{each}.{ANY}" for each in names] + [f"{each}.{SERVED}" for each in deployment.models]
    links = {run.root / GATES / gate: socket for gate in (*gates, f"{name}.{LOADED}")}
    if not has_common_workers:
        return links
    folders = {run.root / COMMON_WORKSPACES / each: stack.root for each in names}
    is_fast = fast_path.suits(deployment) and deployment.default_model == name
    fast = {run.root / FAST / name: stack.deployment} if is_fast else {}
    return folders | links | fast


def values(routes: MultiModelRoutes, settings: Settings) -> Mapping[str, Any]:
    """Values for the template, under ``many``; the constants of this module are under ``gates``."""
    return {
        "target_patterns": tuple(_target_patterns()) if routes.takes_target_model else (),
        "load_timeout_seconds": math.ceil(routes.load_seconds) + MARGIN_SECONDS,
        "wait_seconds": math.ceil(settings.request_timeout_seconds) + MARGIN_SECONDS,
    }


def _target_patterns() -> Iterator[tuple[str, str]]:
    """The paths of archives, and for each the model's name in nginx's variables."""
    for count in range(1, _MAX_SEGMENTS + 1):
        numbers = range(1, count + 1)
        longer_by = (count - 1) * (len(names.SLASH_IN_NAME) - len("/"))  # than the path is the name
        most = names.LOADED_MODEL_CHARACTERS - longer_by + len(names.ARCHIVE_ENDING)
        segments = "/".join(f"(?<segment{number}>{_SEGMENT})" for number in numbers)
        suffix = names.ARCHIVE_ENDING.replace(".", r"\.")
        name = names.SLASH_IN_NAME.join(f"${{segment{number}}}" for number in numbers)
        yield rf"^/?(?=.{{1,{most}}}\z){segments}{suffix}\z", name


def refusals(routes: MultiModelRoutes) -> Mapping[str, tuple[int, str]]:
    """nginx's refusals for lack of a model: status and text by the name of the location."""
    return {
        "502": (502, not_reached("The control API")),
        "worker-died": (502, WORKER_DIED),
        "connections": (503, "the model takes no connections at this moment: try again"),
        "no-model": (404, _WITH_HEADER if routes.takes_target_model else _WITHOUT_HEADER),
        "target-model": (400, _TARGET_NEEDED),
        "models-504": (504, f"not done within {routes.load_seconds:g} seconds: {_GOES_ON}"),
        "control-413": (
            413,
            f"the body is larger than {CONTROL_REQUEST_KB} KB, the limit of requests to this path",
        ),
    }
