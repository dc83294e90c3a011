"""The script for models that bring none: out of a bucket or the image, found at the start of a run."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tfs_proxy.archive.extract import ExtractLimits
from tfs_proxy.archive.s3 import download
from tfs_proxy.errors import ArchiveError
from tfs_proxy.layout import UNIVERSAL_CODE_DIRS, Workspace
from tfs_proxy.settings import Settings

DOWNLOAD_FOLDER: Final = "download"
CODE_FOLDER: Final = "code"


def universal_code(
    settings: Settings, workspace: Workspace, folders: Sequence[Path] = UNIVERSAL_CODE_DIRS
) -> str | None:
    """The folder of the script, None if there is none; raises ArchiveError for a bucket without one.

    Without a bucket it is the first of ``folders`` that has the script.
    Files of the bucket end up in one folder, whatever theirs are called, as in AWS's container
    (docs/reference/aws-container.md). Waits for S3: call it in a thread.
    """
    if settings.universal_bucket is None:
        return next((str(folder) for folder in folders if (folder / settings.program).is_file()), None)
    address = f"s3://{settings.universal_bucket}/{settings.universal_prefix}"
    limits = ExtractLimits(
        settings.max_archive_bytes, settings.max_archive_members, settings.max_archive_ratio
    )
    code = workspace.root / CODE_FOLDER
    flatten(download(address, workspace.root / DOWNLOAD_FOLDER, limits), code, address)
    if not (code / settings.program).is_file():
        raise ArchiveError(
            f"{address} has no {settings.program}: SAGEMAKER_MULTI_MODEL_UNIVERSAL_BUCKET and _PREFIX name "
            "where the script for models without one lies."
        )
    return str(code)


def flatten(downloaded: Path, code: Path, address: str) -> None:
    """Move every file below ``downloaded`` into the new folder ``code``; ArchiveError if names meet."""
    code.mkdir()
    for path in sorted(file for file in downloaded.rglob("*") if file.is_file()):
        if (code / path.name).exists():
            raise ArchiveError(f"{address} has several files called {path.name}, and one folder is for all.")
        shutil.move(path, code / path.name)
