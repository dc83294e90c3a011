"""The router's flags, as the supervisor writes them, to a value."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from tfs_proxy.memory import DEFAULT_DECODED_BYTES

BY_MODEL, BY_SCRIPT, OFF = "model", "script", "off"
"""Who answers inferences of the Open Inference Protocol."""


class RouterOptions(Struct, frozen=True):
    """Where the router listens, where it finds models, and its limits.

    ``gates`` is the folder of the models' gates, or None if ``shared_gates`` lead to the model servers of one
    archive. With ``listen``, HOST:PORT, clients connect to the router itself.
    Calls that nginx does not see are noted in the file ``requests``. ``open_inference`` says who
    answers inferences of the Open Inference Protocol: ``model``, ``script``, or ``off``.
    ``instances`` is how many model servers a model has; ``wait_seconds`` how long a call may wait for a load,
    and ``answer_seconds`` for the model server. The values of an inference may take ``decoded_bytes``.
    """

    socket: Path
    gates: Path | None
    control_socket: Path
    requests: Path
    instances: int
    message_bytes: int
    wait_seconds: float
    answer_seconds: float
    shared_gates: tuple[Path, ...] = ()
    listen: str | None = None
    open_inference: str = BY_MODEL
    decoded_bytes: int = DEFAULT_DECODED_BYTES


def read_options(argv: Sequence[str]) -> RouterOptions:
    """The options that ``argv`` has; ends the process with a usage message if one is missing or odd."""
    parser = argparse.ArgumentParser("tfs_proxy.grpc_router", allow_abbrev=False)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--gates", type=Path)
    parser.add_argument("--control-socket", type=Path, required=True)
    parser.add_argument("--requests", type=Path, required=True)
    parser.add_argument("--instances", type=int, required=True)
    parser.add_argument("--message-bytes", type=int, required=True)
    parser.add_argument("--wait-seconds", type=float, required=True)
    parser.add_argument("--answer-seconds", type=float, required=True)
    parser.add_argument("--shared-gate", dest="shared_gates", type=Path, action="append", default=[])
    parser.add_argument("--listen")
    parser.add_argument("--open-inference", choices=(BY_MODEL, BY_SCRIPT, OFF), default=BY_MODEL)
    parser.add_argument("--decoded-bytes", type=int, default=DEFAULT_DECODED_BYTES)
    flags = vars(parser.parse_args(argv))
    return RouterOptions(**{**flags, "shared_gates": tuple(flags["shared_gates"])})
