"""``tfs-proxy check --multi-model``: which of many archives could not be served, and why."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tfs_proxy.archive.collection import archives_below
from tfs_proxy.commands.script_import import import_script, readable
from tfs_proxy.errors import ArchiveError, ScriptLoadError, StopServing
from tfs_proxy.names import is_loaded_model_name, printable
from tfs_proxy.report.prepare import prepare
from tfs_proxy.settings import Settings, inherited_environment
from tfs_proxy.supervisor.host.workspace import temporary_workspace

FAILED = 1


def check_many(folder: Path, settings: Settings, *, strict: bool) -> int:
    """Print a line for each model below ``folder``, and how many would fail; the exit status.

    If ``strict``, an archive with a warning fails. Raises ArchiveError if there is nothing to check.
    """
    settings = replace(settings, multi_model=False)  # each archive is opened as if it were the only one
    models = archives_below(folder, settings.program)
    failed = 0
    for number, (name, paths) in enumerate(models.items(), start=1):
        shown = printable(name)
        print(f"tfs-proxy: checking {shown} ({number} of {len(models)})", file=sys.stderr, flush=True)
        try:
            _refuse_unservable_name(name, [path.relative_to(folder) for path in paths])
            print(f"ok {shown}: {_finding(paths[0], settings, strict=strict)}", flush=True)
        except StopServing as error:
            failed += 1
            print(f"fails {shown}: {_one_line(str(error))}", flush=True)
    print(f"{failed} of {len(models)} would fail.")
    return FAILED if failed else 0


def _refuse_unservable_name(name: str, paths: Sequence[Path]) -> None:
    """Raise ArchiveError if the archives at ``paths`` share a name, or if it can't be a model's."""
    if len(paths) > 1:
        both = " and ".join(printable(path.as_posix()) for path in paths)
        raise ArchiveError(f"{both} have the same name: rename one of them.")
    if not is_loaded_model_name(name):
        raise ArchiveError(
            f"{printable(paths[0].as_posix())} can't be a model's name: at most 64 letters, digits, "
            "'.', '_' and '-', with '--' for each slash; the first is a letter or digit."
        )


def _finding(path: Path, settings: Settings, *, strict: bool) -> str:
    """What would be served from the archive, in one line.

    Raises what `prepare` raises, ScriptLoadError for a script that can't be used, and ArchiveError for a
    warning if ``strict``.
    """
    with temporary_workspace(settings.home, "tfs-proxy-check-") as workspace:
        prepared = prepare(str(path), settings, workspace, inherited_environment())
        prepared.refuse_unusable_script()
        try:
            missing = import_script(prepared.served, prepared.settings)
        except ScriptLoadError as error:
            raise readable(error, workspace) from None
    warnings = [*prepared.warnings, *([f"Warning: {missing}"] if missing else [])]
    if strict and warnings:
        raise ArchiveError(" ".join(warnings))
    return _one_line("; ".join([prepared.one_line, *warnings]))


def _one_line(text: str) -> str:
    return " ".join(text.split())
