"""Flags of the process of streams, which the supervisor writes, as a value."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct


class StreamOptions(Struct, frozen=True):
    """Addresses and limits of the process of streams.

    ``workers`` is HOST:PORT of the workers, which have ``answer_seconds`` for a message if no script serves
    the streams. A message has at most ``message_bytes``; a stream without one for ``idle_seconds`` is closed.
    Streams have ``stop_seconds`` to end after SIGTERM.
    """

    socket: Path
    control_socket: Path
    workers: str
    message_bytes: int
    idle_seconds: float
    most_streams: int
    answer_seconds: float
    stop_seconds: float
    log_level: str


def read_options(argv: Sequence[str]) -> StreamOptions:
    """Read the flags; ends the process with a usage message if one is missing or invalid."""
    parser = argparse.ArgumentParser("tfs_proxy.worker.streams", allow_abbrev=False)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--control-socket", type=Path, required=True)
    parser.add_argument("--workers", required=True)
    parser.add_argument("--message-bytes", type=int, required=True)
    parser.add_argument("--idle-seconds", type=float, required=True)
    parser.add_argument("--most-streams", type=int, required=True)
    parser.add_argument("--answer-seconds", type=float, required=True)
    parser.add_argument("--stop-seconds", type=float, required=True)
    parser.add_argument("--log-level", required=True)
    return StreamOptions(**vars(parser.parse_args(argv)))
