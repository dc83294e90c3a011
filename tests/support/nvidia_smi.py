"""What ``nvidia-smi -L`` prints, on machines with GPUs, MIG on and off.

The form is that of drivers since 470, where each slice has a UUID of its own, as NVIDIA's MIG User Guide shows
it; names and profiles are those of the cards. UUIDs are made up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
    "NVIDIA driver is installed and running.\n\n"
)
NO_DEVICES = "No devices were found\n"


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU, and the profiles of its slices, MIG devices."""

    name: str
    slices: Sequence[str] = ()


T4 = Card("Tesla T4")
A10G = Card("NVIDIA A10G")
DIVIDED = Card("NVIDIA A100-SXM4-40GB", ["3g.20gb", "2g.10gb", "1g.5gb"])


def gpu_uuid(index: int) -> str:
    """The UUID of the GPU with this number."""
    return f"GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a{index:02x}"


def slice_uuid(gpu: int, index: int) -> str:
    """The UUID of a slice."""
    return f"MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87e{gpu:01x}{index:02x}"


def listing(cards: Sequence[Card]) -> str:
    """The output of ``nvidia-smi -L``."""
    lines = []
    for number, card in enumerate(cards):
        lines.append(f"GPU {number}: {card.name} (UUID: {gpu_uuid(number)})")
        lines += [
            f"  MIG {profile:<11} Device {index:>2}: (UUID: {slice_uuid(number, index)})"
            for index, profile in enumerate(card.slices)
        ]
    return "".join(f"{line}\n" for line in lines)
