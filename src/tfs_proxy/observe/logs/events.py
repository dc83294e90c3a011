"""Gathers the lines that a program prints into events: a traceback is one, whatever its length."""

from collections.abc import Iterator

_TRACEBACK = "Traceback (most recent call last):"
MOST_LINES = 500
"""Of one event; further lines begin another one."""


class EventLines:
    """Lines in, events out, each a list of lines.

    A traceback ends with the line that is not indented. If ``indented_goes_on``, any indented line belongs to
    the one before it, so that an event is known to be whole only when the next one begins, or by `rest`.
    """

    def __init__(self, *, indented_goes_on: bool = False) -> None:
        self._indented_goes_on = indented_goes_on
        self._pending: list[str] = []
        self._in_traceback = False

    @property
    def waits(self) -> bool:
        """Whether there is an event that may go on."""
        return bool(self._pending)

    def add(self, line: str) -> Iterator[list[str]]:
        """Take in a line, without its end; the events that are complete by it."""
        indented = line.startswith((" ", "\t"))
        if len(self._pending) >= MOST_LINES:
            yield from self.rest()
        if self._in_traceback:
            self._pending.append(line)
            if not indented:
                yield from self.rest()
        elif indented and self._indented_goes_on and self._pending:
            self._pending.append(line)
        else:
            yield from self.rest()
            self._pending = [line]
            self._in_traceback = line.startswith(_TRACEBACK)
            if not (self._in_traceback or self._indented_goes_on):
                yield from self.rest()

    def rest(self) -> Iterator[list[str]]:
        """The event that is not complete, if there is one."""
        pending, self._pending, self._in_traceback = self._pending, [], False
        if pending:
            yield pending


def split_traceback(lines: list[str]) -> tuple[str, str]:
    """An event's message and its traceback as text; the message of a traceback is its last line."""
    if lines[0].startswith(_TRACEBACK):
        return lines[-1], "\n".join(lines)
    return "\n".join(lines), ""
