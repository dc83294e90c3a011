"""One entry of the log as a value, and its two forms: a line of text, or one JSON object on a line."""

import json
import math
import time
from collections.abc import Callable, Mapping

from msgspec import Struct, field

from tfs_proxy.names import one_entry

TEXT, JSON = "text", "json"
COMMAND = "tfs-proxy"
"""The process that the user has started: it supervises all others."""

MOST_CHARACTERS = 64 * 1024
"""Of a message or an exception; what is beyond that is left out."""

_RESET = "\x1b[0m"
_COLOURS: Mapping[str, str] = {
    "debug": "\x1b[2m",
    "warning": "\x1b[33m",
    "error": "\x1b[31m",
    "critical": "\x1b[1;31m",
}


class LogEntry(Struct, frozen=True):
    """What happened, where, and because of which request; ``time`` is in seconds since 1970."""

    message: str
    level: str = "info"
    process: str = COMMAND
    pid: int | None = None
    time: float = field(default_factory=time.time)
    request_id: str = ""
    model: str = ""
    exception: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)


Write = Callable[[LogEntry], str]


def writer(form: str, *, coloured: bool = False) -> Write:
    """What turns entries into lines, without their ends: `as_json`, or `as_text`."""
    if form == JSON:
        return as_json
    return as_coloured_text if coloured else as_text


def as_json(entry: LogEntry) -> str:
    """One JSON object; what is not known is left out."""
    known = {
        "time": _rfc3339(entry.time),
        "level": entry.level,
        "process": entry.process,
        "pid": entry.pid,
        "request_id": entry.request_id,
        "model": entry.model,
        "message": _bounded(entry.message),
        "exception": _bounded(entry.exception),
    }
    present = {name: value for name, value in known.items() if _says_something(value) or name == "message"}
    fields = {name: _plain(value) for name, value in entry.fields.items() if _says_something(value)}
    if not known.keys().isdisjoint(fields):
        fields = {"fields": fields}
    return json.dumps({**present, **fields})


def as_text(entry: LogEntry) -> str:
    """Time, level, process, request and message; further lines are indented."""
    return one_entry(f"{_rfc3339(entry.time)} {entry.level.upper():<7} {_what(entry)}")


def as_coloured_text(entry: LogEntry) -> str:
    """As `as_text`, for a terminal."""
    colour = _COLOURS.get(entry.level, "")
    level = f"{colour}{entry.level.upper():<7}{_RESET if colour else ''}"
    return f"\x1b[2m{_rfc3339(entry.time)}{_RESET} {level} {one_entry(_what(entry))}"


def _what(entry: LogEntry) -> str:
    pid = "" if entry.pid is None or entry.process == COMMAND else f"[{entry.pid}]"
    request = f"[{entry.request_id}] " if entry.request_id else ""
    fields = "".join(f" {name}={value}" for name, value in entry.fields.items() if _says_something(value))
    exception = f"\n{_bounded(entry.exception)}" if entry.exception else ""
    return f"{entry.process}{pid}: {request}{_bounded(entry.message)}{fields}{exception}"


def _rfc3339(seconds: float) -> str:
    milliseconds = math.floor(seconds * 1000)
    whole = time.gmtime(milliseconds // 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', whole)}.{milliseconds % 1000:03}Z"


def _bounded(text: str) -> str:
    left_out = len(text) - MOST_CHARACTERS
    return text if left_out <= 0 else f"{text[:MOST_CHARACTERS]}... ({left_out} more characters)"


def _says_something(value: object) -> bool:
    return value is not None and not (isinstance(value, str) and not value)


def _plain(value: object) -> object:
    """``value`` if JSON has it, else as text."""
    if isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    return str(value)
