"""``tfs-proxy warmup``: a folder gets its requests in place, an archive in a new one; `write` makes them."""

from pathlib import Path

from tfs_proxy.archive.progress import ProgressLog
from tfs_proxy.archive.write import write_archive
from tfs_proxy.errors import ArchiveError, SettingsError
from tfs_proxy.layout import ARCHIVE_NAME, WARMUP_FILE
from tfs_proxy.names import printable
from tfs_proxy.packing.lay_out import mirror
from tfs_proxy.packing.warmup.options import WarmedVersion, WarmupOptions
from tfs_proxy.packing.warmup.write import write_files, write_warmup
from tfs_proxy.report.prepare import prepare
from tfs_proxy.settings import Settings, inherited_environment
from tfs_proxy.supervisor.host.workspace import temporary_workspace


def warm_model(
    model: str, output: Path | None, options: WarmupOptions, settings: Settings
) -> tuple[WarmedVersion, ...]:
    """Write the requests into ``model``, a folder, or into ``output``, a copy of the archive ``model``.

    Until all is proven nothing is written. Raises SettingsError for a wrong ``output``, and what `prepare`,
    `write_warmup` and `write_archive` raise.
    """
    folder = Path(model)
    _check_output(model, folder, output)
    with temporary_workspace(settings.home, "tfs-proxy-warmup-") as workspace:
        if output is None:
            mirror(folder, workspace.model)
            model = str(workspace.model)
        prepared = prepare(model, settings, workspace, inherited_environment())
        warmed = write_warmup(prepared, workspace, options)
        if output is None:
            files = [version.folder / WARMUP_FILE for version in warmed]
            write_files({folder / each.relative_to(workspace.model): each.read_bytes() for each in files})
        else:
            writing = ProgressLog(f"Packing {output}")
            write_archive(prepared.served.layout.root, output, writing)
            writing.finish()
    return warmed


def _check_output(model: str, folder: Path, output: Path | None) -> None:
    shown = printable(model)
    if (folder / ARCHIVE_NAME).is_file():
        raise SettingsError(f"{shown} holds {ARCHIVE_NAME}: give its path, and -o FILE for the new one.")
    if folder.is_dir() and output is not None:
        raise SettingsError(f"-o can't be used: {shown} is a folder, which is changed in place.")
    if not folder.is_dir() and output is None:
        raise SettingsError(f"-o FILE is missing: {shown} is an archive, which is left as it is.")
    if output is not None and not output.parent.is_dir():
        raise ArchiveError(f"-o {printable(str(output))} is refused: its folder is not there.")
