"""Printed text as entries: lines, of which a traceback's stay together, and streams for a script's output."""

import io
import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from tfs_proxy.observe.logs.entry import STDERR, STDOUT, EntryHandler
from tfs_proxy.observe.request_record import RequestRecord, current_request

MOST_CHARACTERS = 8192
"""Longest line without an end that a script prints; a longer one is several entries."""

MOST_LINES = 500
"""Most lines of one traceback; further lines are entries of their own."""

_TRACEBACK = "Traceback (most recent call last):"


class Printed:
    """Text that comes in parts, as events: a line each, but for a traceback, whose last line is not indented.

    A line without an end is cut after ``most_characters``.
    """

    __slots__ = ("_most_characters", "_partial", "_traceback")

    def __init__(self, most_characters: int) -> None:
        self._most_characters = most_characters
        self._partial = ""
        self._traceback: list[str] = []

    @property
    def waits(self) -> bool:
        """True if there is an event that may go on."""
        return bool(self._partial or self._traceback)

    def add(self, text: str) -> list[list[str]]:
        """Take in more text; returns the events that it completes."""
        *lines, self._partial = (self._partial + text).split("\n")
        if len(self._partial) > self._most_characters:
            lines.append(self._partial)
            self._partial = ""
        events = []
        for line in map(str.rstrip, lines):
            if not self._traceback and not line.startswith(_TRACEBACK):
                events.append([line])
                continue
            begins = not self._traceback
            self._traceback.append(line)
            if not (begins or line.startswith((" ", "\t"))) or len(self._traceback) >= MOST_LINES:
                events.append(self._traceback)
                self._traceback = []
        return events

    def rest(self) -> list[list[str]]:
        """Return the events that are not complete."""
        events = self.add("\n") if self._partial else []
        events += [self._traceback] if self._traceback else []
        self._traceback = []
        return events


def split_traceback(lines: list[str]) -> tuple[str, str]:
    """Split an event into message and traceback; the message of a traceback is its last line."""
    return lines[-1], "\n".join(lines) if lines[0].startswith(_TRACEBACK) else ""


Say = Callable[[str, str, str], None]
"""Function that writes an entry: message, level, exception."""


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
        self.unfinished: dict[int, Printed] = {}
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
            printed = self.unfinished.setdefault(key, Printed(MOST_CHARACTERS))
            self._emit(printed.add(text))
            if not printed.waits:
                del self.unfinished[key]
        return len(text)

    def finish(self, record: RequestRecord | None = None) -> None:
        """Write the unfinished line of this request (None: of this thread)."""
        with self._lock:
            printed = self.unfinished.pop(_key(record), None)
            if printed is not None:
                self._emit(printed.rest())

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


def print_to(handler: EntryHandler) -> tuple[LoggedStream, LoggedStream]:
    """Make entries of all that this process prints from here on."""
    output = sys.stdout = LoggedStream(handler.say, "info", STDOUT)
    errors = sys.stderr = LoggedStream(handler.say, "warning", STDERR)
    return output, errors
