"""Asks NVIDIA's ``nvidia-smi`` about the GPUs of this machine, before model servers are planned or placed."""

import logging
import shutil
import subprocess
from collections.abc import Mapping
from typing import Final

from tfs_proxy.names import printable
from tfs_proxy.supervisor.gpus.gpu_devices import (
    DESCRIBE_ARGUMENTS,
    LIST_ARGUMENTS,
    GpuDevice,
    devices,
    visible,
)

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 10.0
SHOWN_CHARACTERS: Final = 200


def nvidia_smi(*arguments: str) -> str:
    """What the program prints, "" without a driver or a GPU; waits for the driver: call it in a thread.

    If it fails or takes too long, a warning says so; what it has printed counts all the same.
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
    return visible(devices(nvidia_smi(*LIST_ARGUMENTS), nvidia_smi(*DESCRIBE_ARGUMENTS)), environ)


def count_gpus() -> int:
    """How many GPUs the driver shows; 0 without a driver."""
    return sum(line.startswith("GPU ") for line in nvidia_smi("-L").splitlines())
