"""The GPUs and MIG slices for model servers, from the output of ``nvidia-smi``, and those that they take."""

import logging
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from itertools import chain, takewhile
from typing import Final

from msgspec import Struct

from tfs_proxy.values.names import printable

log = logging.getLogger(__name__)

_UUID = re.compile(r"\(UUID: ((?:GPU|MIG)-[^)]+)\)")


def devices(listing: str) -> tuple[str, ...]:
    """UUIDs of the GPUs that ``nvidia-smi -L`` lists, and of the slices (MIG) in place of a divided one."""
    cards: list[list[str]] = []
    for uuid in _UUID.findall(listing):
        if uuid.startswith("GPU-"):
            cards.append([uuid])
        else:
            cards[-1].append(uuid)
    return tuple(chain.from_iterable(card[1:] or card for card in cards))


PATIENCE_SECONDS: Final = 10.0
SHOWN_CHARACTERS: Final = 200


def nvidia_smi(*arguments: str) -> str:
    """The program's output, "" without a driver or a GPU; waits for the driver: call it in a thread.

    Logs a warning if it fails or takes too long; its output is used anyway.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        ended = subprocess.run(
            [program, *arguments], capture_output=True, timeout=PATIENCE_SECONDS, check=False, text=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("nvidia-smi does not answer: models are served as if there were no GPU (%s)", error)
        return ""
    if ended.returncode:
        # It may be about one of several GPUs: then it shows the others.
        said = printable(ended.stderr.strip() or ended.stdout.strip())
        log.warning("nvidia-smi ended with status %d: %s", ended.returncode, said[:SHOWN_CHARACTERS])
    return ended.stdout


def visible_devices(environ: Mapping[str, str]) -> Sequence[str]:
    """GPUs and MIG slices for a process with this environment, by names for ``CUDA_VISIBLE_DEVICES``.

    None without a driver. If that variable is set, its own entries, up to the first that CUDA would not take.
    """
    found = devices(nvidia_smi("-L"))
    allowed = environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None or not found:
        return found
    return list(takewhile(re.compile(r"\d+|(GPU|MIG)-.+").fullmatch, map(str.strip, allowed.split(","))))


def count_gpus() -> int:
    """Number of the driver's GPUs; 0 without a driver."""
    return sum(line.startswith("GPU ") for line in nvidia_smi("-L").splitlines())


class Placement(Struct, frozen=True):
    """The device of one model server, by its name for CUDA, and the share of its memory."""

    device: str
    memory_share: float


def spread(servers: int, devices: Sequence[str], margin: float) -> tuple[Placement, ...]:
    """One device for each of so many model servers of the same models; none without a GPU.

    They are dealt out in turn. Those on one device share its memory equally, but for ``margin`` (AWS's
    container divides by all of them, docs/reference/aws-container.md).
    """
    if not devices:
        return ()
    turns = [number % len(devices) for number in range(servers)]
    return tuple(Placement(devices[turn], (1 - margin) / turns.count(turn)) for turn in turns)


CREATED = re.compile(
    r"Created device \S*device:(?P<device>GPU:\d+) with (?P<megabytes>\d+) MB memory.*?name: (?P<name>[^,]+),"
)
"""TensorFlow's log line for each GPU that it takes, when the first model is loaded."""


class Devices:
    """GPUs by model server, as logged so far."""

    def __init__(self) -> None:
        self._gpus: dict[str, dict[str, str]] = {}

    def hear(self, server: str, line: str) -> None:
        """Notes a GPU if ``line``, which a model server has printed, names one."""
        if created := CREATED.search(line):
            name = f"{created['device']} ({created['name']}, {created['megabytes']} MB)"
            self._gpus.setdefault(server, {})[created["device"]] = name

    def log(self, server: str, gpus: int) -> None:
        """Logs the devices of ``server``, and warns if it does not use all of the driver's ``gpus``."""
        devices = self._gpus.get(server)
        log.info("%s runs on %s", server, ", ".join(devices.values()) if devices else "the CPU")
        if gpus and not devices:
            log.warning(
                "the driver shows %d GPU(s), but %s uses none: its log says which CUDA library is missing or "
                "does not fit the driver",
                gpus,
                server,
            )
