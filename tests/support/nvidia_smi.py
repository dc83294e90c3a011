"""What ``nvidia-smi -L`` and ``nvidia-smi -q -x`` print, on machines with 0, 1, 4 and 8 GPUs, MIG on and off.

The form is that of drivers since 470 (``nvsmi_device_v11.dtd`` and ``v12``), where each slice has a UUID of its
own, as NVIDIA's MIG User Guide and system management manual show it; names, sizes and profiles are those of
the cards, and the XML has the elements around those that are read. UUIDs are made up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tfs_proxy.run.gpus import GpuDevice, devices

NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
    "NVIDIA driver is installed and running.\n\n"
)
NO_DEVICES = "No devices were found\n"
NO_DEVICES_XML = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
	<timestamp>Tue Mar  4 09:12:55 2025</timestamp>
	<driver_version>550.144.03</driver_version>
	<cuda_version>12.4</cuda_version>
	<attached_gpus>0</attached_gpus>
</nvidia_smi_log>
"""


@dataclass(frozen=True, slots=True)
class Slice:
    """A MIG device: its profile as ``-L`` has it, and its memory in MiB."""

    profile: str
    total: int
    used: int = 25


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU, its memory in MiB; None if it can't be divided, else its slices."""

    name: str
    total: int
    used: int = 1
    slices: Sequence[Slice] | None = None
    divisible: bool = True


T4 = Card("Tesla T4", 15360, used=3, divisible=False)
A10G = Card("NVIDIA A10G", 23028, used=1, divisible=False)
A100 = Card("NVIDIA A100-SXM4-40GB", 40960, used=4)
H100 = Card("NVIDIA H100 80GB HBM3", 81559, used=2)


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
            f"  MIG {mig.profile:<11} Device {index:>2}: (UUID: {slice_uuid(number, index)})"
            for index, mig in enumerate(card.slices or ())
        ]
    return "".join(f"{line}\n" for line in lines)


def description(cards: Sequence[Card]) -> str:
    """The output of ``nvidia-smi -q -x``."""
    gpus = "".join(_gpu(number, card) for number, card in enumerate(cards))
    counted = f"<attached_gpus>{len(cards)}</attached_gpus>\n"
    return NO_DEVICES_XML.replace("<attached_gpus>0</attached_gpus>\n", counted + gpus)


def _gpu(number: int, card: Card) -> str:
    mode = "N/A" if not card.divisible else "Disabled" if card.slices is None else "Enabled"
    slices = "".join(_slice(index, mig) for index, mig in enumerate(card.slices or ()))
    return f"""\
	<gpu id="00000000:{number + 16:02X}:1B.0">
		<product_name>{card.name}</product_name>
		<mig_mode>
			<current_mig>{mode}</current_mig>
			<pending_mig>{mode}</pending_mig>
		</mig_mode>
		<mig_devices>
{slices or "			None"}
		</mig_devices>
		<uuid>{gpu_uuid(number)}</uuid>
{_memory(card.total, card.used)}
	</gpu>
"""


def _slice(index: int, mig: Slice) -> str:
    return f"""\
			<mig_device>
				<index>{index}</index>
{_memory(mig.total, mig.used)}
			</mig_device>
"""


def _memory(total: int, used: int) -> str:
    return f"""\
		<fb_memory_usage>
			<total>{total} MiB</total>
			<reserved>0 MiB</reserved>
			<used>{used} MiB</used>
			<free>{total - used} MiB</free>
		</fb_memory_usage>
		<bar1_memory_usage>
			<total>65536 MiB</total>
			<used>1 MiB</used>
			<free>65535 MiB</free>
		</bar1_memory_usage>"""


def found(*cards: Card) -> Sequence[GpuDevice]:
    """The devices of a machine with these cards."""
    return devices(listing(cards), description(cards))
