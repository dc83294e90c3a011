"""Which GPU or MIG slice each of several model servers gets, and its share of it: pure, before the plan."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from tfs_proxy.supervisor.gpus.gpu_devices import GpuDevice


class Placement(Struct, frozen=True):
    """The device of one model server; ``memory_share`` of its memory, None leaves that to TensorFlow."""

    uuid: str
    memory_share: float | None

    @property
    def environment(self) -> Mapping[str, str]:
        """What the model server needs in its environment."""
        return {"CUDA_VISIBLE_DEVICES": self.uuid}

    @property
    def arguments(self) -> tuple[str, ...]:
        """The flags that the model server needs."""
        return (
            ()
            if self.memory_share is None
            else (f"--per_process_gpu_memory_fraction={self.memory_share:.4f}",)
        )


def spread(servers: int, devices: Sequence[GpuDevice], margin: float) -> tuple[Placement, ...]:
    """One device for each of so many model servers of the same models; none without a GPU.

    They take turns, the emptiest device first, so no device has two more than another. Those on one device
    share its memory equally, but for ``margin`` (AWS's container divides by all of them,
    docs/reference/aws-container.md).
    """
    emptiest_first = sorted(devices, key=lambda device: device.free_bytes, reverse=True)[:servers]
    if not emptiest_first:
        return ()
    turns = [number % len(emptiest_first) for number in range(servers)]
    return tuple(Placement(emptiest_first[turn].uuid, (1 - margin) / turns.count(turn)) for turn in turns)
