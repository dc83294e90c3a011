"""The router's flags, as the supervisor writes them, to a value."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RouterOptions:
    """Where the router listens, where it finds models, and its limits.

    ``instances`` is how many model servers a model has; ``wait_seconds`` how long a call may wait for a load,
    and ``answer_seconds`` for the model server.
    """

    socket: Path
    gates: Path
    control_socket: Path
    instances: int
    message_bytes: int
    wait_seconds: float
    answer_seconds: float


def read_options(argv: Sequence[str]) -> RouterOptions:
    """The options that ``argv`` has; ends the process with a usage message if one is missing or odd."""
    parser = argparse.ArgumentParser("tfs_proxy.grpc_router", allow_abbrev=False)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--gates", type=Path, required=True)
    parser.add_argument("--control-socket", type=Path, required=True)
    parser.add_argument("--instances", type=int, required=True)
    parser.add_argument("--message-bytes", type=int, required=True)
    parser.add_argument("--wait-seconds", type=float, required=True)
    parser.add_argument("--answer-seconds", type=float, required=True)
    return RouterOptions(**vars(parser.parse_args(argv)))
