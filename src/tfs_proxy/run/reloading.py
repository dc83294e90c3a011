"""``serve --reload``: looks for changes of code, models and archive, and has each complete one loaded."""

import asyncio
import importlib.util
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Final

from tfs_proxy.model.discover import SAVED_MODEL_FILES
from tfs_proxy.model.stores import is_remote, objects_at
from tfs_proxy.observe.catalogue import UPDATE_REFUSED
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.run.host.waiting import cancel
from tfs_proxy.run.opening import ServeRequest
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import ArchiveError, SettingsError, StopServing
from tfs_proxy.values.layout import ARCHIVE_NAME, SAGEMAKER_MODEL_DIR
from tfs_proxy.values.names import printable
from tfs_proxy.values.resources import mounts
from tfs_proxy.wire.s3_client import s3_client

log = logging.getLogger(__name__)

Snapshot = Mapping[Path, object]
"""The state of each file: time of its last change, size, and inode, which a rename changes; or an ETag."""

TEMPORARY_ENDINGS = ("~", ".swp", ".swx", ".swo", ".tmp", ".pyc")
TEMPORARY_NAMES = ("__pycache__", "4913")
"""Python's cache; and the name of a file that vim writes to find out whether it may."""

CODE = "code"
CODE_SETTLED_SECONDS: Final = 0.05
"""Changed code is complete after so long without changes: editors write several files, git many."""

MODELS_SETTLED_SECONDS: Final = 2.0
"""The same for models and archives, which take longer to be copied."""

LOOK_SECONDS: Final = 0.2
STORE_LOOK_SECONDS: Final = 1.0
SHARE_OF_TIME: Final = 0.1
"""Most of a core for looking: a folder of many files is looked at less often."""

SHOWN_FILES: Final = 3
RELOAD: Final = "--reload (TFS_PROXY_RELOAD)"
KEEPS_ITS_FILE: Final = (
    "{file} is a mount of its own, so a file that is put in its place is never seen: mount its folder "
    "instead (docker run -v FOLDER:/opt/ml/model; no subPath in Kubernetes)"
)


def snapshot_of_file(path: Path) -> Snapshot:
    """The file at ``path``; empty if there is none."""
    try:
        status = path.stat()
    except OSError:
        return {}
    return {path: (status.st_mtime_ns, status.st_size, status.st_ino)}


def snapshot_of_folder(folder: Path) -> Snapshot:
    """The files below ``folder``, links followed; without caches, hidden and editors' temporary files.

    The folders that Kubernetes swaps below a ConfigMap are hidden: the links to their files tell the change.
    """
    files: dict[Path, object] = {}
    visited: set[str] = set()
    for parent, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(parent)
        folders[:] = [] if real in visited else [name for name in folders if not _is_temporary(name)]
        for name in () if real in visited else names:
            if not _is_temporary(name):
                files |= snapshot_of_file(Path(parent, name))
        visited.add(real)
    return files


def _is_temporary(name: str) -> bool:
    """True if a file or folder of this name tells nothing about the code."""
    return name.startswith((".", "#")) or name.endswith(TEMPORARY_ENDINGS) or name in TEMPORARY_NAMES


def snapshot_of_models(folder: Path) -> Snapshot:
    """Files of the folders below ``folder`` that hold a model, at any depth.

    A version whose graph has not been copied yet is left out, and so are files outside of the models.
    """
    files = {
        path: look
        for path, look in snapshot_of_folder(folder).items()
        if path.relative_to(folder).parts[0] != CODE
    }
    homes = {os.fspath(path.parent) for path in files if path.name in SAVED_MODEL_FILES}
    return {path: look for path, look in files.items() if not homes.isdisjoint(map(os.fspath, path.parents))}


def look_at_models(path: Path) -> Snapshot:
    """The archive at ``path`` or in it, else the models of that folder; or a model file."""
    archive = path / ARCHIVE_NAME
    with suppress(OSError):
        if path.is_dir():
            return snapshot_of_file(archive) if archive.is_file() else snapshot_of_models(path)
    return snapshot_of_file(path)


def changed_files(before: Snapshot, after: Snapshot) -> list[Path]:
    """Files that are new, changed or gone, sorted."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def forget_bytecode(files: Iterable[Path]) -> None:
    """Removes Python's byte code of these modules: it can't tell two versions within a second apart."""
    for path in files:
        if path.suffix == ".py":
            with suppress(OSError):  # there is none, or nobody may write there
                Path(importlib.util.cache_from_source(path)).unlink()


class ModelsInStore:
    """The object or the objects at an address of a store: their ETags tell a change."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._client = cache(s3_client)
        self._last = dict[Path, object]()
        self._reported = ""

    def read(self) -> Snapshot:
        """Reads what is there; the last state if the store can't be reached."""
        reason = ""
        try:
            self._last = {Path(item.key): item.etag for item in objects_at(self._address, self._client)}
        except ArchiveError as error:
            reason = printable(str(error))
        if reason and reason != self._reported:
            log.warning("changes can't be seen: %s", reason)
        self._reported = reason
        return self._last


class Reloading:
    """The changes that a run follows. Raises SettingsError if it can't."""

    def __init__(self, settings: Settings, request: ServeRequest) -> None:
        if request.flags is not None:
            raise SettingsError(f"{RELOAD} can't be used here: only `tfs-proxy serve` follows changes.")
        ports = settings.safe_port_range
        needed = 4 * settings.instance_count
        if ports is not None and ports.low + needed - 1 > ports.high:
            raise SettingsError(
                f"{RELOAD} can't be used with SAGEMAKER_SAFE_PORT_RANGE={ports.low}-{ports.high}: "
                f"old and new model servers need {needed} ports while both run."
            )
        model = request.model or settings.model or str(SAGEMAKER_MODEL_DIR)
        in_store = is_remote(model)
        self._path = Path(model).absolute()
        self._look_at_models = ModelsInStore(model).read if in_store else partial(look_at_models, self._path)
        self._least_seconds = self._look_seconds = STORE_LOOK_SECONDS if in_store else LOOK_SECONDS
        self._code: Path | None = None
        self._loaded: Snapshot = {}
        self._is_refused = False

    def measure(self) -> Iterator[MeasuredMetric]:
        """The metric of a change that is refused."""
        yield MeasuredMetric(UPDATE_REFUSED, {(): float(self._is_refused)})

    def note_models(self) -> None:
        """Notes the state of models and archive before they are opened."""
        self._loaded = self._look_at_models()
        for point in mounts():
            if point.is_relative_to(self._path.resolve()) and point.is_file():
                log.warning("%s", KEEPS_ITS_FILE.format(file=printable(str(point))))

    async def follow(self, code: Path | None, load: Callable[[], Awaitable[str]]) -> None:
        """Has each change loaded, that of a folder ``code`` included; another one meanwhile begins it anew.

        ``load`` returns what serves then, and raises StopServing if that can't be used.
        """
        self._code = code
        self._loaded = {**self._loaded, **self._look_at_code()}
        changed = await self._complete_change()
        while True:
            loading = asyncio.create_task(self._load(changed, load))
            changing = asyncio.create_task(self._complete_change())
            try:
                await asyncio.wait({loading, changing}, return_when=asyncio.FIRST_COMPLETED)
                if loading.done():
                    loading.result()
                changed = await changing
            finally:
                await cancel(loading, changing)

    def _look_at_code(self) -> Snapshot:
        return {} if self._code is None else snapshot_of_folder(self._code)

    async def _complete_change(self) -> list[Path]:
        """Returns the files that differ from those that were loaded last, once they have stopped changing."""
        seen = self._loaded
        since = 0.0
        changed = list[Path]()
        while True:
            await asyncio.sleep(CODE_SETTLED_SECONDS if changed else self._look_seconds)
            began = time.monotonic()
            files = await asyncio.to_thread(lambda: {**self._look_at_code(), **self._look_at_models()})
            if files != seen:
                seen, since = files, began
            changed = changed_files(self._loaded, seen)
            is_code = self._code is not None and all(path.is_relative_to(self._code) for path in changed)
            if changed and began - since >= (CODE_SETTLED_SECONDS if is_code else MODELS_SETTLED_SECONDS):
                self._loaded = seen
                return changed
            self._look_seconds = max(self._least_seconds, (time.monotonic() - began) / SHARE_OF_TIME)

    async def _load(self, changed: Sequence[Path], load: Callable[[], Awaitable[str]]) -> None:
        began = time.monotonic()
        names = ", ".join(printable(path.name) for path in changed[:SHOWN_FILES])
        more = f" and {len(changed) - SHOWN_FILES} more" if len(changed) > SHOWN_FILES else ""
        log.info("%s%s changed: loading it in new processes", names, more)
        forget_bytecode(changed)
        try:
            serving = await load()
        except (StopServing, OSError) as error:
            self._is_refused = True
            reason = printable(str(error))
            sentence = reason if reason.endswith((".", "?")) else f"{reason}."
            log.error(  # noqa: TRY400 - the sentence says it all
                "the change can't be used: %s The models and code loaded before go on serving.", sentence
            )
        else:
            self._is_refused = False
            log.info("%s serves, after %.2f s", serving, time.monotonic() - began)
