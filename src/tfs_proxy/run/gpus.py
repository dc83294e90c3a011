"""The GPUs and MIG slices for model servers, from the output of ``nvidia-smi``: pure."""

import logging
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.values.names import printable

log = logging.getLogger(__name__)

_GPU = re.compile(r"GPU (?P<index>\d+): .*\(UUID: (?P<uuid>GPU-[^)]+)\)")
_SLICE = re.compile(r"\s+MIG \S+\s+Device\s+(?P<index>\d+): \(UUID: (?P<uuid>MIG-[^)]+)\)")
_MEBIBYTES = re.compile(r"\s*(\d+) MiB\s*")


class GpuDevice(Struct, frozen=True):
    """A GPU, or a slice of one (MIG); of a divided GPU, only the slices are devices.

    ``uuid`` is for ``CUDA_VISIBLE_DEVICES``; ``gpu_uuid`` and ``gpu_index`` are those of the card.
    """

    uuid: str
    gpu_uuid: str
    gpu_index: int
    free_bytes: int


def devices(listing: str, description: str) -> tuple[GpuDevice, ...]:
    """The devices in the driver's order, from its output for ``-L`` and, with their memory, ``-q -x``.

    None without a driver or a GPU. A device whose memory the driver does not tell is left out, and so is a
    divided GPU without slices: CUDA can't use it.
    """
    from xml.etree import ElementTree as ET

    try:
        root = ET.fromstring(description)  # noqa: S314 - the driver's own program has written it
    except ET.ParseError:  # it has printed an error instead
        return ()
    described = {(gpu.findtext("uuid") or "").strip(): gpu for gpu in root.iter("gpu")}
    found: list[GpuDevice] = []
    index = 0
    card = ""
    for line in listing.splitlines():
        if gpu := _GPU.match(line):
            index = int(gpu["index"])
            card = gpu["uuid"]
        mig = _SLICE.match(line)
        element = described.get(card)
        if element is None or (gpu is None and mig is None):
            continue
        is_divided = (element.findtext("mig_mode/current_mig") or "").strip() == "Enabled"
        slices = element.iterfind("mig_devices/mig_device") if mig else ()
        parts = [part for part in slices if mig and (part.findtext("index") or "").strip() == mig["index"]]
        if not is_divided:
            parts = [element] if gpu else []
        for part in parts:
            if free := _MEBIBYTES.fullmatch(part.findtext("fb_memory_usage/free") or ""):
                uuid = mig["uuid"] if mig else card
                found.append(GpuDevice(uuid, card, index, int(free[1]) * MEGABYTE))
    return tuple(found)


def visible(found: Sequence[GpuDevice], environ: Mapping[str, str]) -> tuple[GpuDevice, ...]:
    """Those that this run's ``CUDA_VISIBLE_DEVICES`` allows, in its order; all of them if it is not set.

    As in CUDA, its entries are numbers of GPUs or the beginnings of UUIDs, and the first that fits no
    device ends the list.
    """
    allowed = environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return tuple(found)

    def names(entry: str, device: GpuDevice) -> bool:
        if entry.isdecimal():
            return int(entry) == device.gpu_index
        beginnings = device.uuid, device.gpu_uuid
        return entry.startswith(("GPU-", "MIG-")) and any(uuid.startswith(entry) for uuid in beginnings)

    chosen: list[GpuDevice] = []
    for entry in map(str.strip, allowed.split(",")):
        named = [device for device in found if names(entry, device)]
        if not named:
            break
        chosen += (device for device in named if device not in chosen)
    return tuple(chosen)


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


def visible_devices(environ: Mapping[str, str]) -> tuple[GpuDevice, ...]:
    """The GPUs and MIG slices that a process with this environment may use; none without a driver."""
    # The XML has the memory of GPUs and slices, but not the UUID of a slice.
    return visible(devices(nvidia_smi("-L"), nvidia_smi("-q", "-x")), environ)


def count_gpus() -> int:
    """Number of the driver's GPUs; 0 without a driver."""
    return sum(line.startswith("GPU ") for line in nvidia_smi("-L").splitlines())


class Placement(Struct, frozen=True):
    """The device of one model server, and the share of its memory."""

    uuid: str
    memory_share: float


def spread(servers: int, devices: Sequence[GpuDevice], margin: float) -> tuple[Placement, ...]:
    """One device for each of so many model servers of the same models; none without a GPU.

    They are dealt out evenly, the emptiest device first. Those on one device share its memory equally, but
    for ``margin`` (AWS's container divides by all of them, docs/reference/aws-container.md).
    """
    emptiest_first = sorted(devices, key=lambda device: device.free_bytes, reverse=True)[:servers]
    if not emptiest_first:
        return ()
    turns = [number % len(emptiest_first) for number in range(servers)]
    return tuple(Placement(emptiest_first[turn].uuid, (1 - margin) / turns.count(turn)) for turn in turns)


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
