"""Which GPU or MIG slice a model's server gets, and how much of its memory: pure, after `admission`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfs_proxy.errors import NotEnoughResources
from tfs_proxy.multimodel.capacity.gpu_devices import MEBIBYTE, GpuDevice
from tfs_proxy.resources import MODEL_FACTOR

WORKING_BYTES = 512 * MEBIBYTE
"""What a model takes on a GPU beside its variables: libraries' workspaces and the tensors of requests."""

ROUNDING = 1e-6
"""Shares that add up to a whole device may do so only nearly."""

COUNT_SETTING = "TFS_PROXY_MAX_LOADED_MODELS"
MARGIN_SETTING = "SAGEMAKER_TFS_FRACTIONAL_GPU_MEM_MARGIN"


@dataclass(frozen=True, slots=True)
class Placement:
    """The device of one model's server; ``memory_share`` of its memory is None if it has it alone."""

    uuid: str
    memory_share: float | None

    @property
    def environment(self) -> Mapping[str, str]:
        """What the model server needs in its environment."""
        return {"CUDA_VISIBLE_DEVICES": self.uuid}

    def arguments(self, servers: int) -> tuple[str, ...]:
        """The flags that each of so many model servers of the model needs, which divide its share."""
        if self.memory_share is None and servers == 1:
            return ()
        share = (1.0 if self.memory_share is None else self.memory_share) / servers
        return (f"--per_process_gpu_memory_fraction={share:.4f}",)


@dataclass(frozen=True, slots=True)
class _Room:
    """What is left of one device: a share of its memory by what was promised, bytes by that and by use."""

    device: GpuDevice
    is_empty: bool
    share: float
    free_bytes: float


def place(
    name: str,
    bytes_on_disk: int,
    devices: Sequence[GpuDevice],
    placed: Sequence[Placement],
    *,
    margin: float,
    most_models: int = 0,
) -> Placement | None:
    """Where the server of the model ``name`` runs: on the device with most memory left; None without a GPU.

    ``placed`` has the servers there are; each counts with its share, whether it has taken that or not.
    ``margin`` of each device stays free if several share it, as in AWS's container. If ``most_models`` is the
    limit, they share equally; if it is 0, which is none, a model gets what its size asks for, or a device
    alone if that leaves no margin.
    Raises NotEnoughResources if no device has that much left.
    """
    if not devices:
        return None
    rooms = [_room(device, placed, margin) for device in devices]
    rooms.sort(key=lambda room: room.free_bytes, reverse=True)
    neighbours = math.ceil(most_models / len(devices))
    for room in rooms:
        share = _share(room.device, neighbours, bytes_on_disk, margin)
        free_share = room.free_bytes / room.device.total_bytes
        if room.is_empty and (neighbours == 1 or 1 - margin < share <= free_share):
            return Placement(room.device.uuid, None)
        if share <= min(room.share, free_share) + ROUNDING:
            return Placement(room.device.uuid, share)
    raise _refusal(name, rooms[0], _share(rooms[0].device, neighbours, bytes_on_disk, margin))


def _share(device: GpuDevice, neighbours: int, bytes_on_disk: int, margin: float) -> float:
    """The share of a device's memory that a model gets; ``neighbours`` on it, or 0 if nobody knows."""
    if neighbours:
        return (1 - margin) / neighbours
    return (MODEL_FACTOR * bytes_on_disk + WORKING_BYTES) / device.total_bytes


def _room(device: GpuDevice, placed: Sequence[Placement], margin: float) -> _Room:
    """A server without a share has its device alone."""
    promised = [placement.memory_share or 1.0 for placement in placed if placement.uuid == device.uuid]
    share = max(0.0, 1 - margin - sum(promised))
    free_bytes = min(share * device.total_bytes, device.free_bytes) if promised else device.free_bytes
    return _Room(device, not promised, share, free_bytes)


def _refusal(name: str, room: _Room, share: float) -> NotEnoughResources:
    needed_bytes = share * room.device.total_bytes
    free_bytes = min(room.free_bytes, room.share * room.device.total_bytes)
    return NotEnoughResources(
        f"model {name} needs {_megabytes(needed_bytes)} of a GPU's memory, and {room.device.uuid}, which has "
        f"most left, has {_megabytes(free_bytes)}. Unload a model, or change {COUNT_SETTING}, by "
        f"which models share GPUs, or {MARGIN_SETTING}."
    )


def _megabytes(size_bytes: float) -> str:
    return f"{round(size_bytes / MEBIBYTE)} MB"
