"""Where changed code comes from, for `reloader`: a folder that is served in place, or a local archive."""

import logging
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from tfs_proxy.archive.extract import ExtractLimits, extract
from tfs_proxy.archive.fetch import archive_at
from tfs_proxy.archive.progress import ProgressLog
from tfs_proxy.layout import SAGEMAKER_MODEL_DIR, ModelLayout, Workspace
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor.host.daemon_thread import in_daemon_thread
from tfs_proxy.supervisor.reloading.code_files import (
    Snapshot,
    forget_bytecode,
    snapshot_of_file,
    snapshot_of_folder,
)

log = logging.getLogger(__name__)


class CodeSource(Protocol):
    """Looks for changes, and puts changed code to where workers load it from."""

    def look(self) -> Snapshot:
        """The files that tell a change."""

    def put_in_place(self, changed: Sequence[Path]) -> AbstractAsyncContextManager[None]:
        """Have workers load the new code from now on, and the old one again if the block raises.

        Raises ArchiveError if the new code can't be read.
        """


class CodeFolder:
    """The ``code/`` of a folder, which workers load as it is."""

    def __init__(self, code: Path) -> None:
        self._code = code

    def look(self) -> Snapshot:
        """As `CodeSource` says."""
        return snapshot_of_folder(self._code)

    @asynccontextmanager
    async def put_in_place(self, changed: Sequence[Path]) -> AsyncIterator[None]:
        """The code is in place already."""
        forget_bytecode(changed)
        yield


class CodeInArchive:
    """The ``code/`` of a local archive, which is unpacked anew; its models stay those of the start."""

    def __init__(
        self, archive: Path, layout: ModelLayout, workspace: Workspace, limits: ExtractLimits
    ) -> None:
        self._archive, self._layout, self._workspace, self._limits = archive, layout, workspace, limits

    def look(self) -> Snapshot:
        """As `CodeSource` says."""
        return snapshot_of_file(self._archive)

    @asynccontextmanager
    async def put_in_place(self, _changed: Sequence[Path]) -> AsyncIterator[None]:
        """Unpack the archive beside the old code, and exchange the two folders."""
        folder = Path(tempfile.mkdtemp(prefix="reload", dir=self._workspace.root))
        try:
            await self._unpack(folder / "model")
            code, old, new = self._layout.code, folder / "old", folder / "model" / "code"
            new.mkdir(exist_ok=True)
            code.mkdir(exist_ok=True)
            code.rename(old)
            new.rename(code)
            try:
                yield
            except BaseException:
                code.rename(new)
                old.rename(code)
                raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def _unpack(self, target: Path) -> None:
        cancelled = threading.Event()
        unpacking = ProgressLog(f"Unpacking {self._archive}", cancelled)
        await in_daemon_thread(
            lambda: extract(self._archive, target, self._limits, unpacking), "archive", cancelled
        )
        log.info("its code/ is loaded; the models that it holds are served from the next start on")


def code_source(
    model: str | None, layout: ModelLayout, settings: Settings, workspace: Workspace
) -> CodeSource:
    """Where changes of the open archive or folder ``model`` come from; raises ArchiveError if it is gone."""
    archive = archive_at(SAGEMAKER_MODEL_DIR if model is None else Path(model).absolute())
    if archive is None:
        return CodeFolder(layout.code)
    limits = ExtractLimits(
        settings.max_archive_bytes, settings.max_archive_members, settings.max_archive_ratio
    )
    return CodeInArchive(archive, layout, workspace, limits)
