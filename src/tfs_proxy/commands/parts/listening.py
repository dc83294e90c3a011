"""What the commands that listen on a port share: their flags, their first signals, the open port.

Only light imports here: SageMaker waits 250 ms for the port (docs/reference/sagemaker.md), so it opens before
the rest of the package is imported.
"""

import argparse
import logging
import os
import signal
import sys
from socket import socket

from tfs_proxy.errors import SettingsError
from tfs_proxy.names import one_entry
from tfs_proxy.observe.logs.config import STDERR, set_level, wants_colour
from tfs_proxy.observe.logs.entry import JSON, writer
from tfs_proxy.observe.logs.handler import EntryHandler
from tfs_proxy.resources import raise_descriptor_limit
from tfs_proxy.setting_values import HIGHEST_PORT
from tfs_proxy.settings import Settings, asks_for_json, inherited_environment

log = logging.getLogger(__name__)

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - a container's port is published from outside


def add_serving_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --port, --host and --model-server."""
    parser.add_argument("--port", type=_port, help="port to listen on, 0 for a free one (default: 8080)")
    parser.add_argument("--host", default=EVERY_ADDRESS, help="address to listen on (default: %(default)s)")
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


def exit_on_stop_signals() -> None:
    """Exit with 0 on SIGTERM or SIGHUP from now on, until the run loop installs its own handlers."""
    from tfs_proxy.supervisor.host.stop_signals import stop_signals

    # As PID 1 of a container, a process without a handler ignores SIGTERM. Nothing has started yet that must
    # be stopped in order, and an exception could be swallowed by the imports that are under way.
    for number in stop_signals():
        if number is not signal.SIGINT:  # Python's own handler ends the process
            signal.signal(number, lambda _number, _frame: os._exit(0))


def listen(host: str = EVERY_ADDRESS, port: int | None = None) -> tuple[Settings, socket]:
    """Read the settings, open the port (None: the one in the settings), and set up log and limits."""
    try:
        settings = Settings.from_env()
    except SettingsError:
        if asks_for_json(inherited_environment()):
            logging.basicConfig(handlers=[EntryHandler(writer(JSON))])
        raise
    if port is not None:
        settings = settings.with_values(port=port)
    from tfs_proxy.supervisor.host.sockets import listen

    log_as_a_run(settings)
    listener = listen(host, settings.port)
    few_descriptors = raise_descriptor_limit()
    if few_descriptors:
        log.warning("%s", few_descriptors)
    return settings, listener


class _Entries(logging.Formatter):
    """Each record is one entry, whatever names are in it."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        return one_entry(super().format(record))


def log_to_stderr(level: str) -> None:
    """Log a command's progress to standard error, each line after ``tfs-proxy:``."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Entries("tfs-proxy: %(message)s"))
    logging.basicConfig(handlers=[handler])
    set_level(level.lower())


def log_as_a_run(settings: Settings) -> None:
    """Log to standard error as all processes of a run do."""
    write = writer(settings.log_format, coloured=wants_colour(STDERR, inherited_environment()))
    logging.basicConfig(handlers=[EntryHandler(write)])
    set_level(settings.gunicorn_loglevel)
