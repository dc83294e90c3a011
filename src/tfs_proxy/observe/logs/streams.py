"""Streams for ``sys.stdout`` and ``sys.stderr``: a script's lines become entries with their request."""

import io
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from tfs_proxy.observe.logs.foreign import EventLines, split_traceback
from tfs_proxy.observe.request_record import RequestRecord, current_request

MOST_CHARACTERS = 8192
"""Longest line without an end; a longer one is several entries."""

Say = Callable[[str, str, str], None]
"""Function that writes an entry: message, level, exception."""


class _Printed:
    """Text that one request, or one thread, has printed without a line's end."""

    __slots__ = ("events", "partial")

    def __init__(self) -> None:
        self.partial = ""
        self.events = EventLines()


class LoggedStream(io.TextIOBase):
    """Stream whose lines are entries; lines of concurrent requests stay apart.

    ``descriptor`` is for programs that the script starts; ``unfinished`` is text that has been printed
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
        """Error handler of the encoding, which never fails."""
        return "backslashreplace"

    def fileno(self) -> int:
        """Descriptor for programs that the script starts."""
        return self._descriptor

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        """Return False: escapes of a terminal would end up in entries."""
        return False

    def write(self, text: str) -> int:
        """Take in ``text``; text without a line's end waits for it."""
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
        """Write the unfinished line of this request (None: of this thread)."""
        with self._lock:
            printed = self.unfinished.pop(_key(record), None)
            if printed is None:
                return
            if printed.partial:
                self._emit(printed.events.add(printed.partial))
            self._emit(printed.events.rest())

    def reconfigure(self, **_options: Any) -> None:
        """Do nothing, for scripts that reconfigure files; lines are never kept back here."""

    def close(self) -> None:
        """Stay open: a script must not end the log."""

    def _begin_in_child(self) -> None:
        """Drop unfinished lines of other threads: only the thread that forked is here."""
        self._lock = threading.RLock()
        self.unfinished = {}

    def _emit(self, events: Iterable[list[str]]) -> None:
        for event in events:
            message, exception = split_traceback(event)
            if message:
                self._say(message, "error" if exception else self._level, exception)


class _Bytes(io.BufferedIOBase):
    """Byte stream of a script: ``sys.stdout.buffer``."""

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
        """Stay open: a script must not end the log."""


def _key(record: RequestRecord | None) -> int:
    return threading.get_ident() if record is None else id(record)
