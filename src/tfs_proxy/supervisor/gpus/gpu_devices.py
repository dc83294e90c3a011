"""What ``nvidia-smi`` prints -> the GPUs and MIG slices that a model's server can be placed on: pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MEBIBYTE = 1024 * 1024
LIST_ARGUMENTS = ("-L",)
DESCRIBE_ARGUMENTS = ("-q", "-x")
"""Its XML has the memory of GPUs and slices, but not the UUID of a slice, which only ``-L`` prints."""

_GPU = re.compile(r"GPU (?P<index>\d+): .*\(UUID: (?P<uuid>GPU-[^)]+)\)")
_SLICE = re.compile(r"\s+MIG \S+\s+Device\s+(?P<index>\d+): \(UUID: (?P<uuid>MIG-[^)]+)\)")
_MEBIBYTES = re.compile(r"\s*(\d+) MiB\s*")


class GpuDevice(Struct, frozen=True):
    """A GPU, or a slice of one (MIG); one that is divided is not a device, but each of its slices is.

    ``uuid`` is what ``CUDA_VISIBLE_DEVICES`` takes, ``gpu_uuid`` and ``gpu_index`` are those of the card.
    """

    uuid: str
    gpu_uuid: str
    gpu_index: int
    free_bytes: int
    total_bytes: int


class _Listed(Struct, frozen=True):
    """A line of ``nvidia-smi -L`` for a GPU, with the UUIDs of the slices below it, by their numbers."""

    index: int
    uuid: str
    slices: dict[str, str]


def devices(listing: str, description: str) -> tuple[GpuDevice, ...]:
    """The devices in the driver's order, of what it printed for `LIST_ARGUMENTS` and `DESCRIBE_ARGUMENTS`.

    None without a driver or a GPU. A device whose memory the driver does not tell is left out, and so is a
    divided GPU without slices: CUDA can't use it.
    """
    described = _described(description)
    return tuple(
        device
        for gpu in _listed(listing)
        if gpu.uuid in described
        for device in _devices_of(gpu, described[gpu.uuid])
    )


def visible(found: Sequence[GpuDevice], environ: Mapping[str, str]) -> tuple[GpuDevice, ...]:
    """Those that ``CUDA_VISIBLE_DEVICES`` of this run allows, in its order; all of them if it is not set.

    As in CUDA, its entries are numbers of GPUs or the beginnings of UUIDs, and the first that fits no
    device ends the list.
    """
    allowed = environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return tuple(found)
    chosen: list[GpuDevice] = []
    for entry in map(str.strip, allowed.split(",")):
        named = [device for device in found if _names(entry, device)]
        if not named:
            break
        chosen += (device for device in named if device not in chosen)
    return tuple(chosen)


def _names(entry: str, device: GpuDevice) -> bool:
    if entry.isdecimal():
        return int(entry) == device.gpu_index
    beginnings = device.uuid, device.gpu_uuid
    return entry.startswith(("GPU-", "MIG-")) and any(uuid.startswith(entry) for uuid in beginnings)


def _listed(listing: str) -> Sequence[_Listed]:
    gpus: list[_Listed] = []
    for line in listing.splitlines():
        if gpu := _GPU.match(line):
            gpus.append(_Listed(int(gpu["index"]), gpu["uuid"], {}))
        elif gpus and (mig := _SLICE.match(line)):
            gpus[-1].slices[mig["index"]] = mig["uuid"]
    return gpus


def _described(description: str) -> dict[str, "Element"]:
    """The element of each GPU by its UUID; nothing if there is no XML, but the driver's complaint."""
    from xml.etree import ElementTree as ET  # PERF: only one of several model servers is placed

    try:
        root = ET.fromstring(description)  # noqa: S314 - the driver's own program has written it
    except ET.ParseError:
        return {}
    return {(gpu.findtext("uuid") or "").strip(): gpu for gpu in root.iter("gpu")}


def _devices_of(gpu: _Listed, element: "Element") -> Iterator[GpuDevice]:
    if (element.findtext("mig_mode/current_mig") or "").strip() != "Enabled":
        yield from _with_memory(gpu.uuid, gpu, element)
        return
    for mig in element.iterfind("mig_devices/mig_device"):
        uuid = gpu.slices.get((mig.findtext("index") or "").strip())
        if uuid is not None:
            yield from _with_memory(uuid, gpu, mig)


def _with_memory(uuid: str, gpu: _Listed, element: "Element") -> Iterator[GpuDevice]:
    total = _MEBIBYTES.fullmatch(element.findtext("fb_memory_usage/total") or "")
    free = _MEBIBYTES.fullmatch(element.findtext("fb_memory_usage/free") or "")
    if total and free:
        yield GpuDevice(uuid, gpu.uuid, gpu.index, int(free[1]) * MEBIBYTE, int(total[1]) * MEBIBYTE)
