"""``tfs-proxy check --multi-model``: which of many archives could not be served, and why."""

import sys
from collections.abc import Iterator
from pathlib import Path

from tfs_proxy.archive.discover import discover
from tfs_proxy.archive.permissions import unreadable
from tfs_proxy.archive.s3_client import S3_SCHEME
from tfs_proxy.errors import ArchiveError, DiscoveryError, NoModelFound, ScriptLoadError, TfsProxyError
from tfs_proxy.layout import ModelLayout
from tfs_proxy.multimodel.archives.folder import Listing, ModelFolder, model_folder
from tfs_proxy.names import printable
from tfs_proxy.packing.script_import import import_script, readable
from tfs_proxy.report.prepare import prepare
from tfs_proxy.settings import Settings, inherited_environment
from tfs_proxy.supervisor.host.workspace import temporary_workspace

FAILED = 1


def check_many(location: str, settings: Settings, *, strict: bool) -> int:
    """Print a line for each model below ``location``, and how many would fail; the exit status.

    ``location`` is a folder or an ``s3://`` address. If ``strict``, an archive with a warning fails. Raises
    ArchiveError, SettingsError if there is nothing to check.
    """
    settings = settings.with_values(multi_model=False)  # each archive is opened as if it were the only one
    models = model_folder(location)
    listing = models.listing()
    folders = {} if location.startswith(S3_SCHEME) else _folders(Path(location), listing, settings.program)
    names = sorted([*_archives(listing, folders), *folders])
    if not names:
        raise ArchiveError(f"There is no *.tar.gz below {printable(location)}.")
    failed = 0
    for number, name in enumerate(names, start=1):
        shown = printable(name)
        print(f"tfs-proxy: checking {shown} ({number} of {len(names)})", file=sys.stderr, flush=True)
        try:
            url = folders.get(name) or _archive(name, models, listing)
            print(f"ok {shown}: {_finding(url, settings, strict=strict)}", flush=True)
        except TfsProxyError as error:
            failed += 1
            print(f"fails {shown}: {_one_line(str(error))}", flush=True)
    print(f"{failed} of {len(names)} would fail.")
    return FAILED if failed else 0


def _folders(root: Path, listing: Listing, program: str) -> dict[str, str]:
    """Models that are not packed, directly below ``root``: their paths by name, which ends with a slash.

    A folder with archives in it is none, unless they are below the ``code/`` of its script ``program``.
    """
    with_archives = {path.partition("/")[0] for paths in listing.paths.values() for path in paths}
    try:
        folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError as error:
        raise ArchiveError(unreadable(root, error)) from error
    return {
        f"{folder.name}/": str(folder)
        for folder in folders
        if ModelLayout(folder, program).script.is_file()
        or (folder.name not in with_archives and _holds_model(folder))
    }


def _holds_model(folder: Path) -> bool:
    try:
        discover(folder)
    except NoModelFound:
        return False
    except DiscoveryError:
        return True  # there is one, which can't be served: its line says why
    return True


def _archives(listing: Listing, folders: dict[str, str]) -> Iterator[str]:
    """The archives by name, or by path if they can have none; without packages that unpacked models bring."""
    of_models = tuple(folders)
    for name, paths in listing.paths.items():
        if not all(path.startswith(of_models) for path in paths):
            yield name
    yield from (path for path in listing.unnamed if not path.startswith(of_models))


def _archive(name: str, models: ModelFolder, listing: Listing) -> str:
    """The path or address of an archive; raises BadInput if it can't be loaded by this name."""
    if name in listing.unnamed:
        raise ArchiveError(listing.unnamed[name])
    url = models.url_of(name)
    if url is None:
        raise ArchiveError("It is not there any more.")
    return url


def _finding(url: str, settings: Settings, *, strict: bool) -> str:
    """What would be served from the archive, in one line.

    Raises what `prepare` raises, ScriptLoadError for a script that can't be used, and ArchiveError for a
    warning if ``strict``.
    """
    with temporary_workspace(settings.home, "tfs-proxy-check-") as workspace:
        prepared = prepare(url, settings, workspace, inherited_environment())
        prepared.refuse_unusable_script()
        try:
            missing = import_script(prepared.served, prepared.settings)
        except ScriptLoadError as error:
            raise readable(error, workspace) from None
    if strict and prepared.warnings:
        raise ArchiveError(" ".join(prepared.warnings))
    not_checked = [f"Not checked: {missing}"] if missing else []
    return _one_line("; ".join([prepared.one_line, *prepared.warnings, *not_checked]))


def _one_line(text: str) -> str:
    return " ".join(text.split())
