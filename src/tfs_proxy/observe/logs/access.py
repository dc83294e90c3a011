"""Access log: the choice of requests that get a line, and the line.

With nginx in front its line for each of them is a longer one, of which the supervisor makes the entry; a
worker adds its stages to its answer, in a header that nginx keeps for itself. Without nginx the workers do.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from urllib.parse import quote, unquote
from zlib import crc32

from msgspec import Struct, field
from msgspec.structs import replace

from tfs_proxy.observe.logs.entry import LogEntry, entry_handler
from tfs_proxy.observe.logs.reasons import model_server_reason
from tfs_proxy.observe.request_counts import LOGGED, FinishedRequest, read_line
from tfs_proxy.observe.request_record import PLAIN_ID, STAGES, RequestRecord
from tfs_proxy.settings.parsers import AccessLog
from tfs_proxy.values.names import is_model_name
from tfs_proxy.wire.header_names import STAGE_TIMES, nginx_variable
from tfs_proxy.wire.routes import PROBES, method_of, path_of

_NGINX_START = f"{LOGGED.decode()}$chosen_id $caller {nginx_variable(STAGE_TIMES, 'upstream_http')}"
NGINX_PREFIX = f'{_NGINX_START} "$refusal" '
"""Beginning of a line of `request_counts`; ``$refusal`` is `quoted_reason` of nginx's own refusals."""

GRPC_PREFIX = f'{_NGINX_START} "$sent_trailer_grpc_message$sent_http_grpc_message" '
"""Beginning of a call's line; one of two variables has its message, and nginx writes ``-`` for the other."""

LONGEST_PATH = 300
_HASHES = 2**32
_LINE = re.compile(LOGGED + rb"(" + PLAIN_ID.encode() + rb') ([!-~]*) ([!-~]*) "([^"]*)" (.*)', re.DOTALL)


class RequestLine(Struct, frozen=True):
    """One request that has ended, for the access log."""

    request: FinishedRequest
    """Method, target, status and size of the request."""

    request_id: str
    """Id that the client has got in ``X-Request-Id``."""

    model: str = ""
    """Name of the model that was asked; "" if it is not known."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    """Time by stage, without the stages that took none."""

    caller: str = ""
    """Name of the client's key; "" without keys."""

    @property
    def failed(self) -> bool:
        """True if its status, or that of gRPC, is an error."""
        return self.request.status >= HTTPStatus.BAD_REQUEST or self.request.grpc_status not in {"", "0"}

    def entry(self, process: str, pid: int | None = None) -> LogEntry:
        """Make the log's entry, without the query of the request's target."""
        request = self.request
        stages = {f"{name}_ms": _milliseconds(seconds) for name, seconds in self.seconds.items()}
        fields = {
            "method": method_of(request.method),
            "path": path_of(request.target)[:LONGEST_PATH] if request.target.startswith("/") else "",
            "status": request.status,
            "grpc_status": request.grpc_status,
            "caller": self.caller,
            "duration_ms": _milliseconds(request.seconds),
            **stages,
            **({"reason": request.reason} if self.failed and request.reason else {}),
        }
        level = "info"
        if self.failed:
            level = "error" if request.status >= HTTPStatus.INTERNAL_SERVER_ERROR else "warning"
        return LogEntry(
            "request", level, process, pid, request_id=self.request_id, model=self.model, fields=fields
        )


class RequestLog:
    """Log of the requests that ``wanted`` asks for, from the level of the log on."""

    def __init__(self, wanted: AccessLog) -> None:
        self._wanted = wanted
        self._handler = entry_handler()

    def show(self, line: RequestLine, process: str, pid: int | None = None) -> None:
        """Log a request that ``process`` has answered, if ``wanted`` asks for it."""
        if not is_shown(line, self._wanted):
            return
        entry = line.entry(process, pid)
        if logging.getLogger().isEnabledFor(getattr(logging, entry.level.upper())):
            self._handler.write(entry)


def is_shown(line: RequestLine, wanted: AccessLog) -> bool:
    """True if a request gets a line."""
    if wanted.mode == AccessLog.OFF or path_of(line.request.target) in PROBES:
        return False
    if line.failed or wanted.mode == AccessLog.ALL:
        return True
    if wanted.mode == AccessLog.SLOW:
        return line.request.seconds * 1000 >= wanted.milliseconds
    return wanted.mode == AccessLog.SAMPLE and crc32(line.request_id.encode()) < wanted.fraction * _HASHES


def needs_stages(record: RequestRecord, wanted: AccessLog) -> bool:
    """True if an answer, whose status is known, may get a line."""
    # By default this is asked of every good answer.
    mode = wanted.mode
    if mode == AccessLog.ERRORS:
        return record.status >= HTTPStatus.BAD_REQUEST
    return mode != AccessLog.OFF


def stages_text(record: RequestRecord) -> str:
    """Value of `header_names.STAGE_TIMES`: the model, milliseconds of each stage so far, and the reason."""
    model = record.model if is_model_name(record.model) else ""
    stages = [f"{_milliseconds(seconds):g}" for seconds in record.seconds]
    return ";".join([model, *stages, quoted_reason(record.reason)])


def reason_text(reason: str) -> str:
    """Value of `header_names.STAGE_TIMES` for a refusal that no worker makes."""
    return ";" * (len(STAGES) + 1) + quoted_reason(reason)


def quoted_reason(reason: str) -> str:
    """Quote a reason for a header, or for nginx.conf."""
    return quote(reason, safe=",.:=()[]/")


def line_of(record: RequestRecord, request: FinishedRequest) -> RequestLine:
    """Line of a request that a worker has answered."""
    return RequestLine(request, record.request_id, record.model, _taken(record.seconds))


def read_access_line(raw: bytes) -> RequestLine | None:
    """Read a line of nginx's; None if it can't be read."""
    parts = _LINE.fullmatch(raw)
    request = read_line(parts[5]) if parts else None
    if parts is None or request is None:
        return None
    model, *stages = parts[3].decode("ascii").split(";")
    seconds = []
    reason = parts[4].decode("ascii", "replace")
    if not request.grpc_status:  # in the words of nginx, else of the server of a gRPC call
        reason = unquote(reason)
    else:
        said = reason[1:] if reason.startswith("-") else reason.removesuffix("-")
        reason = model_server_reason(unquote(said))
    if len(stages) == len(STAGES) + 1:
        seconds = [_seconds(text) for text in stages[:-1]]
        reason = reason or unquote(stages[-1])
    return RequestLine(
        replace(request, reason=reason),
        parts[1].decode("ascii"),
        next(filter(is_model_name, (model, request.model)), ""),  # the worker's, else the client's
        _taken(seconds),
        caller=parts[2].decode("ascii"),
    )


def _taken(seconds: Sequence[float]) -> dict[str, float]:
    """Stages that took any time."""
    return {name: spent for name, spent in zip(STAGES, seconds, strict=False) if spent}


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _seconds(text: str) -> float:
    try:
        return float(text) / 1000
    except ValueError:
        return 0.0
