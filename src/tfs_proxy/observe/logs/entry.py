"""The format of the log: an entry as a value, its forms as text and JSON, and the handler that writes it."""

import json
import logging
import math
import os
import select
import time
from collections.abc import Callable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from tfs_proxy.observe.request_record import current_request
from tfs_proxy.values.names import one_entry

TEXT, JSON = "text", "json"
COMMAND = "tfs-proxy"
"""Name in the log of the process that the user has started: it supervises all others."""

MOST_CHARACTERS = 64 * 1024
"""Longest message or exception; the rest is left out."""

_STANDARD = frozenset(
    {*vars(logging.LogRecord("", 0, "", 0, "", (), None)), "message", "asctime", "taskName"}
)
_EXCEPTIONS = logging.Formatter()
_RESET = "\x1b[0m"
_COLOURS: Mapping[str, str] = {
    "debug": "\x1b[2m",
    "warning": "\x1b[33m",
    "error": "\x1b[31m",
    "critical": "\x1b[1;31m",
}


class LogEntry(Struct, frozen=True):
    """Entry of the log: an event, its place and its request; ``time`` is in seconds since 1970."""

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
    """Choose the function that turns entries into lines without their ends: `as_json` or `as_text`."""
    if form == JSON:
        return as_json
    return as_coloured_text if coloured else as_text


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
    return json.dumps({**present, **fields})


def as_text(entry: LogEntry) -> str:
    """Write time, level, process, request and message; further lines are indented."""
    return one_entry(f"{_rfc3339(entry.time)} {entry.level.upper():<7} {_what(entry)}")


def as_coloured_text(entry: LogEntry) -> str:
    colour = _COLOURS.get(entry.level, "")
    level = f"{colour}{entry.level.upper():<7}{_RESET if colour else ''}"
    return f"\x1b[2m{_rfc3339(entry.time)}{_RESET} {level} {one_entry(_what(entry))}"


class EntryHandler(logging.Handler):
    """Writes each record as one entry, in one system call; for any number of threads and processes."""

    def __init__(
        self, write: Write, descriptor: int = 2, process: Callable[[], str] = lambda: COMMAND
    ) -> None:
        super().__init__()
        self._write = write
        self._process = process
        self.descriptor = descriptor

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._write(self.entry(record))
        except Exception:  # noqa: BLE001 - a wrong call of `logging` must not break its caller
            line = self._write(
                self._own(f"a log record of {record.pathname}:{record.lineno} can't be formatted", "error")
            )
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
        self.write_line(self._write(entry))

    @property
    def writes_json(self) -> bool:
        """True if each line is a JSON object."""
        return self._write is as_json

    def write_line(self, line: str) -> None:
        """Write a line that is an entry already."""
        write_whole(self.descriptor, f"{line}\n".encode(errors="backslashreplace"))

    def entry(self, record: logging.LogRecord) -> LogEntry:
        """Turn a record into an entry, with the record's extra attributes as fields."""
        extra = {
            name: value
            for name, value in vars(record).items()
            if name not in _STANDARD and not name.startswith("_")  # Ray marks every record for itself
        }
        own_model = extra.pop("model_name", None)
        entry = self._own(record.getMessage(), record.levelname.lower(), _exception_text(record))
        model = str(own_model or entry.model)
        return replace(entry, time=record.created, model=model, fields=extra)

    def _own(self, message: str, level: str, exception: str = "") -> LogEntry:
        request = current_request()
        request_id, model = (request.request_id, request.model) if request else ("", "")
        return LogEntry(
            message,
            level,
            self._process(),
            os.getpid(),
            request_id=request_id,
            model=model,
            exception=exception,
        )


def entry_handler() -> EntryHandler:
    """Handler of this process's log; one that writes text if it does not log by entries."""
    handlers = (handler for handler in logging.getLogger().handlers if isinstance(handler, EntryHandler))
    return next(handlers, EntryHandler(as_text))


def write_whole(descriptor: int, data: bytes) -> None:
    """Write all of ``data``, waiting for a slow reader."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
        except OSError:
            return


def _exception_text(record: logging.LogRecord) -> str:
    texts = []
    if record.exc_info and record.exc_info[0] is not None:
        texts.append(_EXCEPTIONS.formatException(record.exc_info))
    if record.stack_info:
        texts.append(record.stack_info)
    return "\n".join(texts)


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
    """Return ``value`` if JSON has it, else its text."""
    if isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    return str(value)
