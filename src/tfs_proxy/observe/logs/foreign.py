"""Entries of what programs print: the level that a line tells, and no text that a client has sent."""

import re

from tfs_proxy.observe.logs.entry import LogEntry
from tfs_proxy.observe.logs.printed import split_traceback

MODEL_SERVER = "model server"
NGINX = "nginx"
_DAY = r"\d{4}-\d\d-\d\d"
_TIME = r"\d\d:\d\d:\d\d"
_FORMS = tuple(
    re.compile(form, re.DOTALL)
    for form in (
        rf"\d{{4}}/\d\d/\d\d {_TIME} \[(?P<level>\w+)\] \d+#\d+: (?P<message>.*)",  # nginx's
        r"(?P<level>[IWEF])\d{4} [\d:]+\.\d+ +\d+ (?P<message>.*)",  # absl's, or 00:00:UNIX_TIME
        rf"{_DAY} {_TIME}\.\d+: (?P<level>[IWEF]) (?P<message>.*)",  # TensorFlow's
        rf"{_DAY} {_TIME},\d{{3}} (?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<message>.*)",  # logging's
    )
)
_LEVELS = {"I": "info", "W": "warning", "E": "error", "F": "critical", "notice": "info", "warn": "warning"}
_LEVELS |= dict.fromkeys(("crit", "alert", "emerg"), "critical")
_OF_NO_USE = re.compile(
    r"WARNING: All log messages before absl::InitializeLog\(\) is called"
    r"|To enable the following instructions: "
    r"|.*Unable to register cu\w+ (factory|plugin)"  # logged by every TensorFlow that is built for GPUs
    r"|.*computation placer already registered"
    r"|\[warn\] getaddrinfo: address family for nodename not supported"
)
"""Lines of a model server that matter only if TensorFlow itself is broken."""

_OF_REQUEST = re.compile(r"\*\d+ ")
"""nginx's number of a client's connection, before a message that may quote the client."""

_DETAILS = re.compile(r", (client|server|request|subrequest|upstream|host|referrer|login): ")
_CLIENT = ", client: "
_QUOTE = '"'
_LEFT_OUT = "(left out)"


def read_event(lines: list[str], process: str, pid: int | None) -> LogEntry:
    """Make an entry of a line, or a traceback, that a program has printed; of level INFO if it tells none.

    How TensorFlow and nginx start is at ``debug``.
    """
    message, exception = split_traceback(lines)
    if exception:
        return LogEntry(message, "error", process, pid, exception=exception)
    level = "info"
    match = next((match for form in _FORMS if (match := form.match(message))), None)
    if match is not None:
        level = _LEVELS.get(match["level"], match["level"].lower())
        message = match["message"]
    is_of_request = process == NGINX and _OF_REQUEST.match(message)
    if is_of_request:
        own, found_client, details = message[is_of_request.end() :].rpartition(_CLIENT)
        before, quote, quoted = (own if found_client else details).partition(_QUOTE)
        if quote:
            after = quoted.rpartition(_QUOTE)[2] if quoted.count(_QUOTE) == 1 else ""
            before += _LEFT_OUT + after
        message = _DETAILS.split(before, maxsplit=1)[0]
    elif process == NGINX or process.startswith(MODEL_SERVER):
        starts = match is not None and level == "info"
        level = "debug" if starts or _OF_NO_USE.match(lines[0]) else level
    return LogEntry(message, level, process, pid)
