"""Wheels of a script's requirements, downloaded by pip for the machines that will serve it."""

import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from tfs_proxy.values.errors import RequirementsError, SettingsError
from tfs_proxy.values.names import printable

OLDEST_GLIBC = 5
NEWEST_GLIBC = 39
"""Wheels of manylinux_2_N: the images have glibc 2.39 (GPU) and 2.41 (CPU)."""

POLL_SECONDS = 0.1
TAIL_LINES = 10


def download_wheels(
    requirements: Path,
    target: Path,
    pythons: Sequence[str],
    machine: str,
    cancelled: threading.Event | None = None,
) -> None:
    """Fills ``target`` with wheels of the requirements and of everything they depend on.

    Raises RequirementsError with the end of pip's output if a package has no wheel for these Pythons,
    SettingsError without pip, CancelledError once another thread has set ``cancelled``.
    """
    for python in pythons:
        argv = [*_pip(), *arguments(requirements.absolute(), target, python, machine)]
        _run(argv, requirements, python, cancelled or threading.Event())


def arguments(requirements: Path, target: Path, python: str, machine: str) -> list[str]:
    """Arguments of pip; it takes only wheels, since nothing can be built for another machine."""
    tag = "cp" + python.replace(".", "")
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(NEWEST_GLIBC, OLDEST_GLIBC - 1, -1)]
    platforms += [f"{name}_{machine}" for name in ("manylinux2014", "manylinux2010", "manylinux1", "linux")]
    return [
        *("download", "--quiet", "--no-input", "--disable-pip-version-check", "--only-binary=:all:"),
        *("--implementation", "cp", "--python-version", python),
        *("--abi", tag, "--abi", "abi3", "--abi", "none"),
        *(word for platform in platforms for word in ("--platform", platform)),
        *("--requirement", str(requirements), "--dest", str(target)),
    ]


def _pip() -> list[str]:
    if find_spec("pip") is not None:
        return [sys.executable, "-P", "-m", "pip"]
    if uvx := shutil.which("uvx"):
        return [uvx, "pip"]
    raise SettingsError(
        f"--wheels needs pip, which is not installed for {sys.executable}: install it (python -m ensurepip), "
        "or leave out --wheels to have the packages installed when the container starts."
    )


def _run(argv: list[str], requirements: Path, python: str, cancelled: threading.Event) -> None:
    """Runs pip in the folder of the requirements, which relative paths in them start from."""
    process = subprocess.Popen(
        argv,
        cwd=requirements.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        output = None
        while output is None:
            with suppress(subprocess.TimeoutExpired):
                output = process.communicate(timeout=POLL_SECONDS)[0]
            if output is None and cancelled.is_set():
                raise CancelledError
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        tail = "\n".join(map(printable, output.decode(errors="replace").splitlines()[-TAIL_LINES:]))
        raise RequirementsError(
            f"The wheels for Python {python} can't be downloaded: correct the requirements, or leave out "
            f"--wheels to have them installed when the container starts. pip's last lines:\n{tail}"
        )
