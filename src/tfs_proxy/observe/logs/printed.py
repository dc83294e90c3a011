"""Printed text as entries: lines, of which a traceback's stay together, and files for a script's output."""

import io
import os
import sys
import threading
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


class PrintedLines(io.RawIOBase):
    """File whose lines are entries of ``handler``; lines of concurrent requests stay apart.

    ``descriptor`` is for programs that a script starts; ``unfinished`` is text without its line's end.
    """

    name = "<log>"

    def __init__(self, handler: EntryHandler, level: str, descriptor: int) -> None:
        self._handler = handler
        self._level = level
        self._descriptor = descriptor
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """Drop what there is, after a fork, too: threads that may hold the lock are not in the child."""
        self._lock = threading.RLock()
        self.unfinished: dict[int, Printed] = {}

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Take in text; without a line's end it waits for it."""
        read = bytes(data)
        with self._lock:
            key = _key(current_request())
            printed = self.unfinished.setdefault(key, Printed(MOST_CHARACTERS))
            self._log(printed.add(read.decode(errors="backslashreplace")))
            if not printed.waits:
                del self.unfinished[key]
        return len(read)

    def finish(self, record: RequestRecord | None = None) -> None:
        """Log the unfinished line of this request (None: of this thread)."""
        with self._lock:
            printed = self.unfinished.pop(_key(record), None)
            if printed is not None:
                self._log(printed.rest())

    def close(self) -> None:
        """Stay open: a script must not end the log."""

    def _log(self, events: list[list[str]]) -> None:
        for event in events:
            message, exception = split_traceback(event)
            if message:
                self._handler.say(message, "error" if exception else self._level, exception)


def _key(record: RequestRecord | None) -> int:
    return threading.get_ident() if record is None else id(record)


def text_file(lines: PrintedLines) -> io.TextIOWrapper:
    """Make a file for ``sys.stdout`` or ``sys.stderr``, which keeps nothing back."""
    return io.TextIOWrapper(lines, "utf-8", "backslashreplace", newline="\n", write_through=True)


def print_to(handler: EntryHandler) -> tuple[PrintedLines, PrintedLines]:
    """Make entries of all that this process prints from here on."""
    output = PrintedLines(handler, "info", STDOUT)
    errors = PrintedLines(handler, "warning", STDERR)
    sys.stdout = text_file(output)
    sys.stderr = text_file(errors)
    return output, errors
