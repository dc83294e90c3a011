"""Records of `logging` as entries, written to a descriptor: with the request that this thread handles."""

import logging
import os
import select
from collections.abc import Callable

from tfs_proxy.observe.logs.entry import COMMAND, LogEntry, Write, as_json, as_text
from tfs_proxy.observe.request_record import current_request

_STANDARD = frozenset(
    {*vars(logging.LogRecord("", 0, "", 0, "", (), None)), "message", "asctime", "taskName"}
)
_EXCEPTIONS = logging.Formatter()


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
        """Write a record."""
        try:
            line = self._write(self.entry(record))
        except Exception:  # noqa: BLE001 - a wrong call of `logging` must not break what calls it
            line = self._write(
                self._own(f"a log record of {record.pathname}:{record.lineno} can't be formatted", "error")
            )
        self.write_line(line)

    def say(self, message: str, level: str, exception: str = "") -> None:
        """Write an entry of this process, whatever its level."""
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
        """Whether each line is a JSON object."""
        return self._write is as_json

    def write_line(self, line: str) -> None:
        """Write what is an entry already."""
        write_whole(self.descriptor, f"{line}\n".encode(errors="backslashreplace"))

    def entry(self, record: logging.LogRecord) -> LogEntry:
        """The entry of a record: what else the record carries are its fields."""
        extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        request = current_request()
        own_model = extra.pop("model_name", None)
        return LogEntry(
            record.getMessage(),
            record.levelname.lower(),
            self._process(),
            os.getpid(),
            record.created,
            request.request_id if request else "",
            str(own_model or (request.model if request else "")),
            _exception_text(record),
            {name: value for name, value in extra.items() if value is not None},
        )

    def _own(self, message: str, level: str, exception: str = "") -> LogEntry:
        request = current_request()
        return LogEntry(
            message,
            level,
            self._process(),
            os.getpid(),
            request_id=request.request_id if request else "",
            model=request.model if request else "",
            exception=exception,
        )


def entry_handler() -> EntryHandler:
    """The handler that this process logs by; one that writes text if it does not log by entries."""
    handlers = (handler for handler in logging.getLogger().handlers if isinstance(handler, EntryHandler))
    return next(handlers, EntryHandler(as_text))


def write_whole(descriptor: int, data: bytes) -> None:
    """Write all of ``data``, and wait for a reader who is slow."""
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
