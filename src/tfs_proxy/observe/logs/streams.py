"""What a script prints, as entries with its request: stands in for ``sys.stdout`` and ``sys.stderr``."""

import io
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from tfs_proxy.observe.logs.foreign import EventLines, split_traceback
from tfs_proxy.observe.request_record import RequestRecord, current_request

MOST_CHARACTERS = 8192
"""Of a line without an end; what is longer is several entries."""

Say = Callable[[str, str, str], None]
"""Writes an entry: message, level, exception."""


class _Printed:
    """What one request, or one thread, has printed and not ended."""

    __slots__ = ("events", "partial")

    def __init__(self) -> None:
        self.partial = ""
        self.events = EventLines()


class LoggedStream(io.TextIOBase):
    """Each line is an entry; lines of requests at the same time stay apart.

    ``descriptor`` is what programs that the script starts write to; ``unfinished`` is what has been printed
    without its line end.
    """

    def __init__(self, say: Say, level: str, descriptor: int) -> None:
        self._say = say
        self._level = level
        self._descriptor = descriptor
        self._lock = threading.RLock()
        self.unfinished: dict[int, _Printed] = {}
        self.buffer = _Bytes(self)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin_in_child)

    @property
    def encoding(self) -> str:  # type: ignore[override]  # typeshed has a plain attribute
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]  # typeshed has a plain attribute
        """Nothing that is printed fails to be encoded."""
        return "backslashreplace"

    def fileno(self) -> int:
        """The descriptor for programs that the script starts."""
        return self._descriptor

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        """Never: escapes of a terminal would end up in entries."""
        return False

    def write(self, text: str) -> int:
        """Take in ``text``; what has no line end yet waits for it."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        with self._lock:
            key = _key(current_request())
            printed = self.unfinished.setdefault(key, _Printed())
            *lines, printed.partial = (printed.partial + text).split("\n")
            if len(printed.partial) > MOST_CHARACTERS:
                lines.append(printed.partial)
                printed.partial = ""
            for line in lines:
                self._emit(printed.events.add(line.rstrip("\r")))
            if not printed.partial and not printed.events.waits:
                del self.unfinished[key]
        return len(text)

    def finish(self, record: RequestRecord | None = None) -> None:
        """Write what this request (None: this thread) has not ended with a line end."""
        with self._lock:
            printed = self.unfinished.pop(_key(record), None)
            if printed is None:
                return
            if printed.partial:
                self._emit(printed.events.add(printed.partial))
            self._emit(printed.events.rest())

    def reconfigure(self, **_options: Any) -> None:
        """Scripts may ask for what a file has; lines are never kept back here."""

    def close(self) -> None:
        """Stay open: a script must not end the log."""

    def _begin_in_child(self) -> None:
        """Only the thread that forked is here, and what others have begun is theirs to end."""
        self._lock = threading.RLock()
        self.unfinished = {}

    def _emit(self, events: Iterable[list[str]]) -> None:
        for event in events:
            message, exception = split_traceback(event)
            if message:
                self._say(message, "error" if exception else self._level, exception)


class _Bytes(io.BufferedIOBase):
    """Bytes that a script prints: ``sys.stdout.buffer``."""

    def __init__(self, text: LoggedStream) -> None:
        self._text = text

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        read = bytes(data)
        self._text.write(read.decode(errors="backslashreplace"))
        return len(read)

    def fileno(self) -> int:
        return self._text.fileno()

    def close(self) -> None:
        """Stay open, as the stream does."""


def _key(record: RequestRecord | None) -> int:
    return threading.get_ident() if record is None else id(record)
