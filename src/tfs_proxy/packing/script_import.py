"""What `check` and `pack` find out about a script by importing it in a process of its own."""

import logging

from tfs_proxy.errors import ScriptLoadError
from tfs_proxy.layout import Workspace
from tfs_proxy.report.prepare import without_workspace
from tfs_proxy.report.served import Served
from tfs_proxy.script.probe import importable
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor.programs.packages import brings_packages

log = logging.getLogger(__name__)


def import_script(served: Served, settings: Settings) -> str | None:
    """Import the script; a sentence if it lacks a module that only ``serve`` would install.

    Raises ScriptLoadError if it can't be imported for any other reason.
    """
    if served.script is None:
        return None
    try:
        importable(
            served.script,
            served.import_paths,
            script_model=served.script_model is not None,
            seconds=settings.wait_time_seconds,
        )
    except ScriptLoadError as error:
        if not (error.missing and brings_packages(served.layout)):
            raise
        name = served.layout.script.relative_to(served.layout.root)
        return (
            f"{name} could not be tried, because {error.missing} can't be imported here: only serve "
            f"installs {served.layout.requirements.relative_to(served.layout.root)}."
        )
    return None


def readable(error: ScriptLoadError, workspace: Workspace) -> ScriptLoadError:
    """``error``, its traceback logged, with file names as in the archive."""
    if error.report:
        log.error("%s", without_workspace(error.report, workspace))
    return ScriptLoadError(without_workspace(str(error), workspace))
