"""Makes a checked model.tar.gz of a model: lay out, check, write; for the command ``tfs-proxy pack``."""

import logging
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from tfs_proxy.data.capture import CapturedRequest
from tfs_proxy.model.progress import ProgressLog
from tfs_proxy.model.report.prepare import Prepared, prepare, without_workspace
from tfs_proxy.model.report.startup import server_warnings
from tfs_proxy.model.write import write_archive
from tfs_proxy.run.host.workspace import temporary_workspace
from tfs_proxy.run.programs.packages import brings_packages
from tfs_proxy.serving.script.probe import importable
from tfs_proxy.settings.settings import Settings, inherited_environment
from tfs_proxy.tools.pack.lay_out import LayoutOptions, check_name, lay_out
from tfs_proxy.tools.pack.warmup import warm_up
from tfs_proxy.values.errors import ArchiveError, DiscoveryError, ScriptLoadError
from tfs_proxy.values.layout import Workspace
from tfs_proxy.values.names import printable

log = logging.getLogger(__name__)


def try_script(prepared: Prepared, workspace: Workspace) -> str | None:
    """Imports the script; returns a sentence if it lacks a module that only ``serve`` would install.

    Raises ScriptLoadError if it can't be imported for any other reason.
    """
    prepared.refuse_unusable_script()
    served = prepared.served
    if served.script is None:
        return None
    try:
        importable(
            served.script,
            served.import_paths,
            script_model=served.script_model is not None,
            seconds=prepared.settings.wait_time_seconds,
        )
    except ScriptLoadError as error:
        if not (error.missing and brings_packages(served.layout)):
            raise readable(error, workspace) from None
        name = served.layout.script.relative_to(served.layout.root)
        return (
            f"{name} could not be tried, because {error.missing} can't be imported here: only serve "
            f"installs {served.layout.requirements.relative_to(served.layout.root)}."
        )
    return None


def readable(error: ScriptLoadError, workspace: Workspace) -> ScriptLoadError:
    """Logs the traceback, and returns ``error`` with file names as in the archive."""
    if error.report:
        log.error("%s", without_workspace(error.report, workspace))
    return ScriptLoadError(without_workspace(str(error), workspace))


ENDINGS = (".tar.gz", ".tgz")


class Packed(Struct, frozen=True):
    """A written archive's size in bytes, and the report on it, as lines to show."""

    size: int
    report: tuple[str, ...]


def pack(
    options: LayoutOptions, output: Path, warmup: Sequence[CapturedRequest] | None, settings: Settings
) -> Packed:
    """Writes the archive ``output`` if `check` finds no fault in it.

    ``warmup`` has the requests to record in the models, () for those that `warm_up` makes, None for none.
    Raises what `lay_out`, `prepare` and `warm_up` raise, DiscoveryError for a model that could not
    answer, and ScriptLoadError for a script that can't be used; then ``output`` is as it was.
    """
    shown = printable(str(output))
    if not output.name.endswith(ENDINGS):
        raise ArchiveError(f"-o {shown} is refused: SageMaker wants a name that ends with .tar.gz.")
    if output.is_dir():
        raise ArchiveError(f"-o {shown} is refused: it is a folder.")
    if not output.parent.is_dir():
        raise ArchiveError(f"-o {shown} is refused: there is no folder {printable(str(output.parent))}.")
    check_name(options)
    with temporary_workspace(settings.home, "tfs-proxy-pack-") as workspace:
        lay_out(options, workspace.model, settings)
        prepared = prepare(str(workspace.model), settings, workspace, inherited_environment())
        if prepared.model_faults:
            raise DiscoveryError(f"Nothing was packed: {' '.join(prepared.model_faults)}")
        missing = try_script(prepared, workspace)
        warnings = [*prepared.warnings, *server_warnings(prepared.served)]
        if missing:
            warnings.append(f"Warning: {missing}")
        warmed = () if warmup is None else warm_up(prepared, workspace, warmup)
        writing = ProgressLog(f"Packing {output}")
        size = write_archive(workspace.model, output, writing)
        writing.finish()
    # The first line of a report names the temporary folder, which is gone now.
    return Packed(size, (*prepared.report[1:], *warnings, *warmed))
