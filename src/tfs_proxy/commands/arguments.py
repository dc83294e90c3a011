"""Flags, first signals and files of requests that several commands share."""

import argparse
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tfs_proxy.data.capture import BEGINNING_BYTES, CapturedRequest, captured_request, is_capture
from tfs_proxy.observe.logs.entry import JSON, STDERR, EntryHandler, LogConfig, set_level, wants_colour
from tfs_proxy.settings.parsers import HIGHEST_PORT, asks_for_json
from tfs_proxy.settings.settings import Settings, inherited_environment
from tfs_proxy.values.attributes import SIGNATURE_NAME
from tfs_proxy.values.errors import ArchiveError, BadInput, Interrupted, SettingsError
from tfs_proxy.values.names import one_entry
from tfs_proxy.values.resources import raise_descriptor_limit
from tfs_proxy.wire.header_names import bearer
from tfs_proxy.wire.media_types import of_file

if TYPE_CHECKING:
    from tfs_proxy.run.host.sockets import Listeners

log = logging.getLogger(__name__)

SIGNATURE_HELP = "the model's signature (default: serving_default, else the only one that can be asked)"


def add_serving_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=_port, help="port to listen on, 0 for a free one (default: 8080)")
    parser.add_argument("--host", help="address to listen on, all or local (default: TFS_PROXY_HOST)")
    parser.add_argument(
        "--model-server",
        default="auto",
        metavar="auto|embedded|PATH",
        help="auto takes tensorflow_model_server from PATH, else the embedded server (default: auto)",
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"{text} is not a port: take a number from 0 to {HIGHEST_PORT}")
    return int(text)


def add_access_arguments(parser: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    parser.add_argument(
        "--ca", metavar="FILE", help="PEM file of CAs to trust at https:// instead of the system's"
    )
    parser.add_argument(
        "--key",
        type=_key,
        metavar="KEY|@FILE",
        help="key of a server with TFS_PROXY_API_KEYS, or a line NAME KEY of its file; @ and a file with one",
    )


def add_attribute_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds flags of a request's custom attributes, a list."""
    add = partial(parser.add_argument, dest="custom_attributes", action="append", default=[])
    add("--custom-attributes", metavar="TEXT", help="such as tfs-model-name=NAME")
    add("--signature", metavar="NAME", type=f"{SIGNATURE_NAME.key}={{}}".format, help=SIGNATURE_HELP)


def _key(text: str) -> str:
    try:
        given = Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text
        lines = [line.split() for line in given.splitlines() if not line.startswith("#")]
        first, *rest = next(filter(None, lines), [""])
        key = " ".join(rest) or first  # the server's file has a name first
        bearer(key)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text[1:]} can't be read: {error.strerror}") from None
    except ValueError:
        where = f"of {text[1:]} " if text.startswith("@") else ""
        raise argparse.ArgumentTypeError(f"the key {where}must be ASCII without spaces") from None
    return key


def at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 1 up")
    return int(text)


def exit_on_stop_signals() -> None:
    """Makes SIGTERM and SIGHUP exit with 0, until the run loop installs its own handlers."""
    from tfs_proxy.run.host.processes import stop_signals

    # As PID 1 of a container, a process without a handler ignores SIGTERM. Nothing has started yet that must
    # be stopped in order, and an exception could be swallowed by the imports that are under way.
    for number in stop_signals():
        if number is not signal.SIGINT:  # Python's own handler would end the process
            signal.signal(number, lambda _number, _frame: os._exit(0))


@contextmanager
def interruptible(said: str = "stopped") -> Iterator[None]:
    """Treats SIGTERM as Ctrl-C, so that temporary files and processes are removed. Raises Interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(said) from None


def listen(host: str | None = None, port: int | None = None) -> tuple[Settings, "Listeners"]:
    """Reads the settings, opens the port (None: that of the settings), and sets up log and limits."""
    try:
        settings = Settings.from_env()
    except SettingsError:
        if asks_for_json(inherited_environment()):
            logging.basicConfig(handlers=[EntryHandler(LogConfig(JSON))])
        raise
    if port is not None:
        settings = settings.with_values(port=port)
    from tfs_proxy.run.host.sockets import default_host, listen_on

    config = LogConfig(settings.log_format, wants_colour(STDERR, inherited_environment()))
    logging.basicConfig(handlers=[EntryHandler(config)])
    set_level(settings.gunicorn_loglevel)
    words = host or settings.hosts or default_host(inherited_environment())
    listeners = listen_on([word.strip() for word in words.split(",")], settings.port)
    few_descriptors = raise_descriptor_limit()
    if few_descriptors:
        log.warning("%s", few_descriptors)
    return settings.with_values(hosts=",".join(each.getsockname()[0] for each in listeners)), listeners


class _Entries(logging.Formatter):
    """Formats each record as one entry, whatever logger it comes from."""

    def format(self, record: logging.LogRecord) -> str:
        return one_entry(super().format(record))


def log_to_stderr(level: str) -> None:
    """Logs a command's progress to standard error, each line after ``tfs-proxy:``."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Entries("tfs-proxy: %(message)s"))
    logging.basicConfig(handlers=[handler])
    set_level(level.lower())


STDIN = Path("-")


def read_requests(
    file: Path | None, content_type: str | None, custom_attributes: str | None
) -> list[CapturedRequest]:
    """The requests of a file of data capture, else the one whose body it is; - is stdin, None has none.

    The type and the attributes, if they are given, win over captured ones; the type of another body is that
    of the file's ending. Raises ArchiveError.
    """
    if file is None:
        return []
    body = body_of(file)
    if not is_capture(file.name, body[:BEGINNING_BYTES]):
        return [CapturedRequest(body, content_type or of_file(file.name), custom_attributes)]
    requests = [_captured(line, number, file) for number, line in enumerate(body.splitlines(True), 1)]
    return [
        CapturedRequest(
            request.body, content_type or request.content_type, custom_attributes or request.custom_attributes
        )
        for request in requests
        if request is not None
    ]


def _captured(line: bytes, number: int, file: Path) -> CapturedRequest | None:
    try:
        return None if line.isspace() else captured_request(line)
    except BadInput as error:
        raise ArchiveError(f"The request {file}, line {number}: {error}.") from None


def body_of(file: Path) -> bytes:
    """The body of a request; - is stdin. Raises ArchiveError if the file can't be read."""
    try:
        return sys.stdin.buffer.read() if file == STDIN else file.read_bytes()
    except OSError as error:
        raise ArchiveError(f"The request {file} can't be read: {error.strerror}.") from error
