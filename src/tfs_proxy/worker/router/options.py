"""Flags of the router, which the supervisor writes, as a value."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from tfs_proxy.values.deployment import BY_MODEL, BY_SCRIPT, OFF
from tfs_proxy.values.memory import DEFAULT_DECODED_BYTES


class RouterOptions(Struct, frozen=True):
    """Addresses, sources and limits of the router.

    ``loads`` says that models come and go, and that calls wait for them. With ``listen``, HOST:PORT, clients
    connect to the router itself.
    Calls that nginx does not see are recorded in the file ``requests``. ``open_inference`` says who
    answers inferences of the Open Inference Protocol: ``model``, ``script``, or ``off``. A call may wait
    ``wait_seconds`` for a load, and ``answer_seconds`` for the model server. The values of an inference may
    take ``decoded_bytes``.
    """

    socket: Path
    control_socket: Path
    requests: Path
    message_bytes: int
    wait_seconds: float
    answer_seconds: float
    loads: bool = False
    listen: str | None = None
    open_inference: str = BY_MODEL
    decoded_bytes: int = DEFAULT_DECODED_BYTES


def read_options(argv: Sequence[str]) -> RouterOptions:
    """Read the flags; ends the process with a usage message if one is missing or invalid."""
    parser = argparse.ArgumentParser("tfs_proxy.worker.router", allow_abbrev=False)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--loads", action="store_true")
    parser.add_argument("--control-socket", type=Path, required=True)
    parser.add_argument("--requests", type=Path, required=True)
    parser.add_argument("--message-bytes", type=int, required=True)
    parser.add_argument("--wait-seconds", type=float, required=True)
    parser.add_argument("--answer-seconds", type=float, required=True)
    parser.add_argument("--listen")
    parser.add_argument("--open-inference", choices=(BY_MODEL, BY_SCRIPT, OFF), default=BY_MODEL)
    parser.add_argument("--decoded-bytes", type=int, default=DEFAULT_DECODED_BYTES)
    return RouterOptions(**vars(parser.parse_args(argv)))
