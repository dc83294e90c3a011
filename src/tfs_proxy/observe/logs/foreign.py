"""Output of programs: lines gathered into events, and events of nginx, TensorFlow and others as entries.

Text that clients send is left out: nginx quotes request lines, with their queries, and headers.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from tfs_proxy.observe.logs.entry import LogEntry
from tfs_proxy.wire.routes import method_of

_TRACEBACK = "Traceback (most recent call last):"
MOST_LINES = 500
"""Most lines of one event; further lines begin another one."""

_NGINX = re.compile(
    r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[(?P<level>\w+)\] (?P<pid>\d+)#\d+: "
    r"(?:\*(?P<connection>\d+) )?(?P<message>.*)",
    re.DOTALL,
)
_TENSORFLOW = re.compile(
    r"(?:(?P<level>[IWEF])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ "  # absl's form
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: (?P<older_level>[IWEF]) )"
    r"(?P<source>[^ \]]+:\d+)\] ?(?P<message>.*)",
    re.DOTALL,
)
_EMBEDDED = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<message>.*)",
    re.DOTALL,
)
_LETTERS: Mapping[str, str] = {"I": "info", "W": "warning", "E": "error", "F": "critical"}
_NGINX_LEVELS: Mapping[str, str] = {
    "notice": "info",
    "warn": "warning",
    "crit": "critical",
    "alert": "critical",
    "emerg": "critical",
}
_DETAILS = re.compile(r", (client|server|request|subrequest|upstream|host|referrer|login): ")
_CLIENT = ", client: "
_QUOTE, _LEFT_OUT = '"', "(left out)"
_REQUEST = re.compile(r', request: "([A-Z]{1,20}) (/[!-~]*?)(?:\?[!-~]*)?(?: HTTP/[0-9.]+)?"')


class EventLines:
    """Buffer that gathers lines into events, each a list of lines.

    A traceback ends with the line that is not indented. If ``indented_goes_on``, any indented line belongs to
    the one before it, so that an event is known to be whole only when the next one begins, or by `rest`.
    """

    def __init__(self, *, indented_goes_on: bool = False) -> None:
        self._indented_goes_on = indented_goes_on
        self._pending: list[str] = []
        self._in_traceback = False

    @property
    def waits(self) -> bool:
        """True if there is an event that may go on."""
        return bool(self._pending)

    def add(self, line: str) -> Iterator[list[str]]:
        """Take in a line, without its end; yields the events that it completes."""
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
        """Yield the event that is not complete, if there is one."""
        pending, self._pending, self._in_traceback = self._pending, [], False
        if pending:
            yield pending


def split_traceback(lines: list[str]) -> tuple[str, str]:
    """Split an event into message and traceback; the message of a traceback is its last line."""
    if lines[0].startswith(_TRACEBACK):
        return lines[-1], "\n".join(lines)
    return "\n".join(lines), ""


class ForeignEvent(Struct, frozen=True):
    """Event as read; ``connection`` is nginx's number of the client's connection, None without one."""

    message: str
    level: str = "info"
    pid: int | None = None
    exception: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)
    connection: int | None = None

    def entry(self, process: str, pid: int | None, request_id: str = "") -> LogEntry:
        """Make an entry; ``pid`` is the program's, for events that do not name one."""
        return LogEntry(
            self.message,
            self.level,
            process,
            self.pid or pid,
            request_id=request_id,
            exception=self.exception,
            fields=self.fields,
        )


def read_event(lines: Sequence[str]) -> ForeignEvent:
    """Read an event of any program; one in no known form becomes a message of level INFO."""
    message, exception = split_traceback(list(lines))
    if exception:
        return ForeignEvent(message, "error", exception=exception)
    if match := _NGINX.match(message):
        return _of_nginx(match)
    if match := _TENSORFLOW.match(message):
        level = _LETTERS[match["level"] or match["older_level"]]
        return ForeignEvent(match["message"], level, fields={"source": match["source"]})
    if match := _EMBEDDED.match(message):
        return ForeignEvent(match["message"], match["level"].lower())
    return ForeignEvent(message)


def _of_nginx(match: re.Match[str]) -> ForeignEvent:
    level = _NGINX_LEVELS.get(match["level"], match["level"])
    pid = int(match["pid"])
    if match["connection"] is None:
        return ForeignEvent(match["message"], level, pid)
    request = _REQUEST.search(match["message"])
    fields = {"method": method_of(request[1]), "path": request[2]} if request else {}
    message = _without_quoted(match["message"])
    return ForeignEvent(message, level, pid, fields=fields, connection=int(match["connection"]))


def _without_quoted(message: str) -> str:
    """Cut nginx's message before it quotes a client, whose text may have quotes and commas of its own."""
    own, found_client, details = message.rpartition(_CLIENT)
    before, quote, quoted = (own if found_client else details).partition(_QUOTE)
    if quote:
        after = quoted.rpartition(_QUOTE)[2] if quoted.count(_QUOTE) == 1 else ""
        before += _LEFT_OUT + after
    return _DETAILS.split(before, maxsplit=1)[0]
