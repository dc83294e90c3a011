"""The parts of nginx.conf that say what it logs, of requests and of errors: pure."""

from pathlib import Path

from tfs_proxy.observe.logs.access import GRPC_PREFIX, NGINX_PREFIX, OVER_LIMIT
from tfs_proxy.observe.request_counts import NGINX_FORMAT, NGINX_GRPC_FORMAT
from tfs_proxy.setting_values import AccessLog
from tfs_proxy.settings import Settings
from tfs_proxy.wire.header_names import GRPC_MODEL, STAGE_TIMES, nginx_variable

GRPC_STATUS = "$sent_trailer_grpc_status$sent_http_grpc_status"
QUIET_LEVELS = frozenset({"error", "crit", "alert", "emerg"})
"""At these levels only requests that fail have lines in the error log."""


def directives(settings: Settings, path: Path) -> str:
    """For the http block: the file of requests that may get a line in the log.

    Those that fail, may break off, or went to more than one server, have one in any case: nginx's error log
    is about them. It is not about those that the adaptive limit refuses, which may be most of them.
    """
    only_failed = settings.access_log.mode in {AccessLog.OFF, AccessLog.ERRORS}
    default = 0 if only_failed and settings.nginx_loglevel in QUIET_LEVELS else 1
    # PERF: the exact key of a good answer spares most requests the patterns.
    refused = nginx_variable(STAGE_TIMES, "upstream_http")
    return f"""map {refused} $refused {{ default ""; "{OVER_LIMIT}" "refused:"; }}
    map "$refused$upstream_http_transfer_encoding$status:$upstream_status:{GRPC_STATUS}" $is_logged {{
        default {default};
        "200:200:" {default};
        "200:200:0" {default};
        "~^[45]" 1;
        "~^chunked" 1;  # by pieces: it breaks off after its status
        "~:.*(502|504)" 1;
        "~:[1-9][0-9]*$" 1;  # of gRPC
    }}
    {_grpc_model()}
    log_format access '{NGINX_PREFIX}{NGINX_FORMAT}';
    log_format grpc_access '{GRPC_PREFIX}{NGINX_GRPC_FORMAT}';
    uninitialized_variable_warn off;  # $refusal is what nginx itself refuses
    access_log {path} access if=$is_logged;"""


def _grpc_model() -> str:
    """The model of a gRPC call: a router says it at the end of an answer, or in its only head."""
    said = "".join(nginx_variable(GRPC_MODEL, kind) for kind in ("upstream_trailer", "upstream_http"))
    return f'map "{said}" $grpc_model {{ default "{said}"; "" "- -"; }}'


def grpc_directive(path: Path) -> str:
    """The same for the server block of gRPC."""
    return f"access_log {path} grpc_access if=$is_logged;"


def error_level(level: str) -> str:
    """The level for nginx: at ``debug`` it would log requests with their headers, so ``info`` is the last."""
    return "info" if level == "debug" else level
