"""The format of the log: an entry as a value, its forms as text and JSON, and the handler that writes it."""

import json
import logging
import math
import os
import select
import time
from collections.abc import Callable, Mapping

from msgspec import Struct, convert, field, to_builtins
from msgspec.structs import replace

from tfs_proxy.observe.request_record import current_request
from tfs_proxy.values.names import one_entry, utf8_texts

JSON = "json"
COMMAND = "tfs-proxy"
"""Name in the log of the process that the user has started: it supervises all others."""

LOG_VARIABLE = "TFS_PROXY_LOG"
STDOUT = 1
STDERR = 2
QUIET = ("botocore", "boto3", "s3transfer", "urllib3")
"""Libraries whose debug lines have credentials, headers or the whole request."""

MOST_CHARACTERS = 64 * 1024
"""Longest message or exception; the rest is left out."""

_STANDARD = frozenset(
    {*vars(logging.LogRecord("", 0, "", 0, "", (), None)), "message", "asctime", "taskName"}
)
_EXCEPTIONS = logging.Formatter()
_RESET = "\x1b[0m"
_FAINT = "\x1b[2m"
_COLOURS: Mapping[str, str] = {
    "debug": _FAINT,
    "warning": "\x1b[33m",
    "error": "\x1b[31m",
    "critical": "\x1b[1;31m",
}


class LogEntry(Struct, frozen=True):
    """Entry of the log: an event, its place and its request."""

    message: str
    """Text of the event; further lines of it are indented in a text log."""

    level: str = "info"
    """Level in lower case, such as "warning"."""

    process: str = COMMAND
    """Name of the process that tells it, such as "nginx"."""

    pid: int | None = None
    """Process id; None if the entry is about no running process."""

    time: float = field(default_factory=time.time)
    """Time of the event in seconds since 1970."""

    request_id: str = ""
    """Id of the request that it is about; "" without one."""

    model: str = ""
    """Name of the model that it is about; "" without one."""

    exception: str = ""
    """Traceback; "" without one."""

    fields: Mapping[str, object] = field(default_factory=dict)
    """Further values, which JSON shows by their names."""


class LogConfig(Struct, frozen=True):
    """Form of entries, and the descriptor to write them to; a terminal's are ``coloured``.

    gunicorn and its workers get it in a variable of their environment.
    """

    form: str = "text"
    coloured: bool = False
    descriptor: int = STDERR

    def variable(self) -> dict[str, str]:
        """Variable for the environment of another process."""
        return {LOG_VARIABLE: json.dumps(to_builtins(self))}

    @classmethod
    def inherited(cls, environ: Mapping[str, str]) -> "LogConfig":
        """Read this process's `variable`; the defaults if there is none."""
        return convert(json.loads(environ.get(LOG_VARIABLE, "{}")), cls)

    def line(self, entry: LogEntry) -> str:
        """Write an entry as a line, without its end; as text, further lines are indented."""
        return as_json(entry) if self.form == JSON else as_text(entry, coloured=self.coloured)


TEXT = LogConfig()


def set_level(level: str) -> None:
    """Log from this level on; libraries that would log credentials stay quiet."""
    for name in (None, "gunicorn.error"):
        logging.getLogger(name).setLevel(level.upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def wants_colour(descriptor: int, environ: Mapping[str, str]) -> bool:
    """True if a terminal reads from ``descriptor``, and nobody asks for no colour (https://no-color.org)."""
    return os.isatty(descriptor) and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def as_json(entry: LogEntry) -> str:
    """Write one JSON object; unknown fields are left out."""
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
    return json.dumps(utf8_texts({**present, **fields}))


def as_text(entry: LogEntry, *, coloured: bool = False) -> str:
    """Write time, level, process, request and message; further lines are indented."""
    when = _rfc3339(entry.time)
    level = f"{entry.level.upper():<7}"
    if coloured:
        colour = _COLOURS.get(entry.level, "")
        when = f"{_FAINT}{when}{_RESET}"
        level = f"{colour}{level}{_RESET if colour else ''}"
    pid = "" if entry.pid is None or entry.process == COMMAND else f"[{entry.pid}]"
    request = f"[{entry.request_id}] " if entry.request_id else ""
    fields = "".join(f" {name}={value}" for name, value in entry.fields.items() if _says_something(value))
    exception = f"\n{_bounded(entry.exception)}" if entry.exception else ""
    what = f"{entry.process}{pid}: {request}{_bounded(entry.message)}{fields}{exception}"
    return f"{when} {level} {one_entry(what)}"


class EntryHandler(logging.Handler):
    """Writes each record as one entry, in one system call; for any number of threads and processes."""

    def __init__(self, config: LogConfig = TEXT, process: Callable[[], str] = lambda: COMMAND) -> None:
        super().__init__()
        self._config = config
        self._process = process

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._config.line(self._entry(record))
        except Exception:  # noqa: BLE001 - a wrong call of `logging` must not break its caller
            self.say(f"a log record of {record.pathname}:{record.lineno} can't be formatted", "error")
        else:
            self.write_line(line)

    def say(self, message: str, level: str, exception: str = "") -> None:
        """Write an entry of this process, regardless of its level."""
        self.acquire()
        try:
            self.write(self._own(message, level, exception))
        finally:
            self.release()

    def write(self, entry: LogEntry) -> None:
        """Write an entry; nothing happens if nobody reads any more."""
        self.write_line(self._config.line(entry))

    @property
    def writes_json(self) -> bool:
        """True if each line is a JSON object."""
        return self._config.form == JSON

    def write_line(self, line: str) -> None:
        """Write all of a line that is an entry already, waiting for a slow reader."""
        data = f"{line}\n".encode(errors="backslashreplace")
        while data:
            try:
                data = data[os.write(self._config.descriptor, data) :]
            except BlockingIOError:
                select.select([], [self._config.descriptor], [])
            except OSError:
                return

    def _entry(self, record: logging.LogRecord) -> LogEntry:
        """Turn a record into an entry, with the record's extra attributes as fields."""
        extra = {
            name: value
            for name, value in vars(record).items()
            if name not in _STANDARD and not name.startswith("_")  # Ray marks every record for itself
        }
        texts = [record.stack_info] if record.stack_info else []
        if record.exc_info and record.exc_info[0] is not None:
            texts.insert(0, _EXCEPTIONS.formatException(record.exc_info))
        own_model = extra.pop("model_name", None)
        entry = self._own(record.getMessage(), record.levelname.lower(), "\n".join(texts))
        return replace(entry, time=record.created, model=str(own_model or entry.model), fields=extra)

    def _own(self, message: str, level: str, exception: str) -> LogEntry:
        request = current_request()
        request_id, model = (request.request_id, request.model) if request else ("", "")
        process = self._process()
        pid = os.getpid()
        return LogEntry(message, level, process, pid, request_id=request_id, model=model, exception=exception)


def entry_handler() -> EntryHandler:
    """Handler of this process's log; one that writes text if it does not log by entries."""
    handlers = (handler for handler in logging.getLogger().handlers if isinstance(handler, EntryHandler))
    return next(handlers, None) or EntryHandler()


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
    """Return ``value`` if JSON has it, else its text."""
    if isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    return str(value)
