"""Puts the script and what it needs into code/: inference.py, requirements.txt, wheels; part of `lay_out`."""

import shutil
import threading
from pathlib import Path

from tfs_proxy.errors import ArchiveError, SettingsError
from tfs_proxy.layout import ModelLayout
from tfs_proxy.names import printable
from tfs_proxy.packing.options import LayoutOptions
from tfs_proxy.packing.wheels import download_wheels

JUNK = shutil.ignore_patterns("__pycache__", "*.pyc", ".git", ".venv", ".ipynb_checkpoints", ".DS_Store")


def add_code(options: LayoutOptions, layout: ModelLayout, cancelled: threading.Event | None = None) -> None:
    """Fill ``code/`` of a laid-out folder; without a script there is nothing to do.

    Raises ArchiveError for a script or requirements that are not there, SettingsError for flags that don't
    fit together, RequirementsError if wheels can't be downloaded.
    """
    if options.script is not None:
        _copy_script(options.script, layout)
    if options.requirements is not None:
        _copy_requirements(options.requirements, layout)
    if options.wheels is not None:
        if not layout.requirements.is_file():
            raise SettingsError("--wheels needs to know which: give --requirements FILE.")
        download_wheels(layout.requirements, layout.wheels, options.wheels, cancelled)


def _copy_script(script: Path, layout: ModelLayout) -> None:
    shown = printable(str(script))
    if script.is_file():
        layout.code.mkdir(exist_ok=True)
        shutil.copy(script, layout.script)
        return
    if not script.is_dir():
        raise ArchiveError(
            f"There is no file or folder {shown}: --script must be inference.py or its folder."
        )
    if not (script / layout.program).is_file():
        inside = (script / layout.code.name / layout.program).is_file()
        hint = f" Give {shown}/{layout.code.name} instead." if inside else ""
        raise ArchiveError(f"There is no {layout.program} in {shown}, so it would not be used.{hint}")
    shutil.copytree(script, layout.code, ignore=JUNK)


def _copy_requirements(requirements: Path, layout: ModelLayout) -> None:
    shown = printable(str(requirements))
    if not requirements.is_file():
        raise ArchiveError(f"There is no file {shown}: --requirements must be a requirements.txt.")
    if not layout.script.is_file():
        raise SettingsError("--requirements are those of a script: give --script, too.")
    if layout.requirements.exists() and layout.requirements.read_bytes() != requirements.read_bytes():
        raise SettingsError(
            f"The script's folder has a {layout.requirements.name}, too: leave out one of them."
        )
    if layout.lib.is_dir():
        raise SettingsError(f"--requirements would be ignored: the script's folder has {layout.lib.name}/.")
    shutil.copyfile(requirements, layout.requirements)
