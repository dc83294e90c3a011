"""Places a model's model servers: on a GPU or MIG slice, and at ports."""

import math
from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct

from tfs_proxy.run.gpus import GpuDevice, Placement
from tfs_proxy.run.host.sockets import is_free_port
from tfs_proxy.settings.parsers import PortRange
from tfs_proxy.values.errors import NotEnoughResources
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.values.resources import MODEL_FACTOR

WORKING_BYTES = 512 * MEGABYTE
"""Memory of a model on a GPU besides its variables: libraries' workspaces and the tensors of requests."""

ROUNDING = 1e-6
"""Tolerance for shares that add up to a whole device."""

COUNT_SETTING = "TFS_PROXY_MAX_LOADED_MODELS"
MARGIN_SETTING = "SAGEMAKER_TFS_FRACTIONAL_GPU_MEM_MARGIN"


class _Room(Struct, frozen=True):
    """The free part of one device: a share of its memory by promises, bytes by promises and by use."""

    device: GpuDevice
    is_empty: bool
    share: float
    free_bytes: float


def place_servers(
    name: str,
    bytes_on_disk: int,
    servers: int,
    devices: Sequence[GpuDevice],
    placed: Sequence[Placement],
    *,
    margin: float,
    most_models: int = 0,
) -> tuple[Placement, ...]:
    """The place of each of the model's model servers, by `place`; none without a GPU.

    A device gets a second one only if no other has room.
    """
    chosen: list[Placement] = []
    while devices and len(chosen) < servers:
        chosen.append(
            place(
                *(name, bytes_on_disk, devices, placed, chosen),
                margin=margin,
                most_servers=most_models * servers,
            )
        )
    return tuple(chosen)


def place(
    name: str,
    bytes_on_disk: int,
    devices: Sequence[GpuDevice],
    placed: Sequence[Placement],
    siblings: Sequence[Placement] = (),
    *,
    margin: float,
    most_servers: int = 0,
) -> Placement:
    """The place for a server: the emptiest device by memory, but with few siblings.

    ``placed`` has the existing servers, ``siblings`` those of the same model that were placed before; each
    counts with its share, whether it has taken that or not. ``margin`` of each device stays free if several
    share it, as in AWS's container. With a limit of ``most_servers``, they share equally; if it is 0, which
    is none, a server gets what its model's size asks for, or a device alone if that leaves no margin. Raises
    NotEnoughResources if no device has that much left.
    """
    rooms = [_room(device, [*placed, *siblings], margin) for device in devices]
    own = Counter(sibling.uuid for sibling in siblings)
    rooms.sort(key=lambda room: (own[room.device.uuid], -room.free_bytes))
    neighbours = math.ceil(most_servers / len(devices))
    for room in rooms:
        share = _share(room.device, neighbours, bytes_on_disk, margin)
        free_share = room.free_bytes / room.device.total_bytes
        if room.is_empty and (neighbours == 1 or 1 - margin < share <= free_share):
            return Placement(room.device.uuid, None)
        if share <= min(room.share, free_share) + ROUNDING:
            return Placement(room.device.uuid, share)
    emptiest = max(rooms, key=lambda room: room.free_bytes)
    raise _refusal(name, emptiest, _share(emptiest.device, neighbours, bytes_on_disk, margin))


def _share(device: GpuDevice, neighbours: int, bytes_on_disk: int, margin: float) -> float:
    """The share of a device's memory for a model; ``neighbours`` on it, or 0 if nobody knows."""
    if neighbours:
        return (1 - margin) / neighbours
    return (MODEL_FACTOR * bytes_on_disk + WORKING_BYTES) / device.total_bytes


def _room(device: GpuDevice, placed: Sequence[Placement], margin: float) -> _Room:
    """Room on a device; a server without a share has its device alone."""
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
    return f"{round(size_bytes / MEGABYTE)} MB"


PORTS_OF_A_SERVER = 2


class PortBlocks:
    """Blocks of ports for ``servers`` model servers each; without ``ports`` every model takes free ones.

    ``is_free`` returns true if a port can be bound: other programs may have some of the range.
    """

    def __init__(
        self, ports: PortRange | None, servers: int, is_free: Callable[[int], bool] = is_free_port
    ) -> None:
        self._ports, self._is_free = ports, is_free
        self._size = PORTS_OF_A_SERVER * servers
        self._taken: dict[object, PortRange] = {}

    def take(self, owner: object, name: str) -> PortRange | None:
        """The lowest block of free ports, for ``owner``. Raises NotEnoughResources if there is none."""
        if self._ports is None:
            return None
        count = (self._ports.high + 1 - self._ports.low) // self._size
        blocks = (self._block(self._ports, number) for number in range(count))
        block = next(filter(self._is_usable, blocks), None)
        if block is None:
            ports = f"SAGEMAKER_SAFE_PORT_RANGE={self._ports.low}-{self._ports.high}"
            raise NotEnoughResources(
                f"model {name} can't be loaded: {ports} has ports for {count} models, which all are taken, "
                "by models or by other programs. Unload one, or name more ports."
            )
        self._taken[owner] = block
        return block

    def give_back(self, owner: object) -> None:
        """Releases the owner's block; idempotent."""
        self._taken.pop(owner, None)

    def _block(self, ports: PortRange, number: int) -> PortRange:
        low = ports.low + number * self._size
        return PortRange(low, low + self._size - 1)

    def _is_usable(self, block: PortRange) -> bool:
        if block in self._taken.values():
            return False
        return all(map(self._is_free, range(block.low, block.high + 1)))
