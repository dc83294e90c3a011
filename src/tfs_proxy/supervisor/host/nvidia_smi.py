"""Asks NVIDIA's ``nvidia-smi`` about the GPUs of this machine, before model servers are planned or placed."""

import logging
import shutil
import subprocess
from typing import Final

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 10.0


def nvidia_smi(*arguments: str) -> str:
    """What the program prints, "" without a driver or a GPU; waits for the driver: call it in a thread.

    If it fails or takes too long, a warning says so.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        ended = subprocess.run(
            [program, *arguments], capture_output=True, timeout=PATIENCE_SECONDS, check=True, text=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("nvidia-smi does not answer: models are served as if there were no GPU (%s)", error)
        return ""
    return ended.stdout


def count_gpus() -> int:
    """How many GPUs the driver shows; 0 without a driver."""
    return sum(line.startswith("GPU ") for line in nvidia_smi("-L").splitlines())
