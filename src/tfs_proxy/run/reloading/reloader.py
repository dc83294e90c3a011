"""The loop of ``serve --reload``: look, wait until a change is complete, load it, report."""

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from tfs_proxy.run.reloading.files import Snapshot, changed_files
from tfs_proxy.run.run_loop import cancel
from tfs_proxy.values.errors import ScriptLoadError, StopServing
from tfs_proxy.values.names import printable

log = logging.getLogger(__name__)


class SettlingFiles:
    """Files that differ from the ``loaded`` ones count once they have been the same for ``seconds``."""

    def __init__(self, loaded: Snapshot, seconds: float) -> None:
        self._loaded = self._seen = loaded
        self._seconds = seconds
        self._since = 0.0

    def note(self, files: Snapshot, now: float) -> None:
        """Notes the files' present state."""
        if files != self._seen:
            self._seen, self._since = files, now

    @property
    def is_pending(self) -> bool:
        """True if there is a change, complete or not."""
        return self._seen != self._loaded

    def is_whole(self, now: float) -> bool:
        """True if there is no change, or a complete one."""
        return not self.is_pending or now - self._since >= self._seconds

    def take(self) -> tuple[Path, ...]:
        """The files that have changed; from here on these are loaded."""
        changed = changed_files(self._loaded, self._seen)
        self._loaded = self._seen
        return changed


CODE_SETTLED_SECONDS = 0.05
"""Changed code is complete after so long without changes: editors write several files, git many."""

MODELS_SETTLED_SECONDS = 2.0
"""The same for models and archives, which take longer to be copied."""

SHARE_OF_TIME = 0.1
"""Most of a core for looking: a folder of many files is looked at less often."""

SHOWN_FILES = 3


class Change(Struct, frozen=True):
    """The files that have changed; ``models`` since those that serve."""

    code: tuple[Path, ...]
    models: tuple[Path, ...]


class ChangeLoader(Protocol):
    """Looks at code and models, and loads them."""

    def look_at_code(self) -> Snapshot:
        """The files of the code that is followed."""

    def look_at_models(self) -> Snapshot:
        """The files of the models, or the archive."""

    async def load_code(self, changed: Sequence[Path], /) -> str:
        """Serves with changed code; returns what serves then. Raises StopServing if it can't be used."""

    async def load_models(self) -> str:
        """Serves changed models, and the present code; returns what serves then. Raises StopServing."""


class Reloader:
    """Follows what ``loader`` sees, every ``look_seconds``; ``models`` is what has been loaded of them."""

    def __init__(self, loader: ChangeLoader, models: Snapshot, look_seconds: float) -> None:
        self._loader = loader
        self._not_loaded: set[Path] = set()
        self._code = SettlingFiles(loader.look_at_code(), CODE_SETTLED_SECONDS)
        self._models = SettlingFiles(models, MODELS_SETTLED_SECONDS)
        self._least_seconds = self._look_seconds = look_seconds
        self.refused = False

    async def run(self) -> None:
        """Loads each change; a change during a load restarts it."""
        await self._whole_change()
        while True:
            self._not_loaded.update(self._models.take())
            change = Change(self._code.take(), tuple(sorted(self._not_loaded)))
            loading = asyncio.create_task(self._load(change))
            changing = asyncio.create_task(self._whole_change())
            try:
                await asyncio.wait({loading, changing}, return_when=asyncio.FIRST_COMPLETED)
                if loading.done():
                    loading.result()
                    await changing
            finally:
                await cancel(loading, changing)

    async def _whole_change(self) -> None:
        """Waits until files differ from those that were loaded last, and have stopped changing."""
        while True:
            await asyncio.sleep(CODE_SETTLED_SECONDS if self._code.is_pending else self._look_seconds)
            now = await self._look()
            is_changed = self._models.is_pending or self._code.is_pending
            if is_changed and self._code.is_whole(now) and self._models.is_whole(now):
                return

    async def _look(self) -> float:
        """Looks once; returns the time of it."""
        began = time.monotonic()
        code = await asyncio.to_thread(self._loader.look_at_code)
        models = await asyncio.to_thread(self._loader.look_at_models)
        self._code.note(code, began)
        self._models.note(models, began)
        now = time.monotonic()
        self._look_seconds = max(self._least_seconds, (now - began) / SHARE_OF_TIME)
        return began

    async def _load(self, change: Change) -> None:
        began = time.monotonic()
        try:
            if change.models:
                log.info("%s changed: loading it in new processes", shown(change.models + change.code))
                serving = await self._loader.load_models()
                self._not_loaded.clear()
            else:
                log.info("%s changed: loading the code in new workers", shown(change.code))
                serving = await self._loader.load_code(change.code)
        except (StopServing, OSError) as error:
            self.refused = True
            _report(error)
        else:
            self.refused = False
            log.info("%s serves, after %.2f s", serving, time.monotonic() - began)


def _report(error: StopServing | OSError) -> None:
    if isinstance(error, ScriptLoadError) and error.report:
        log.error("%s", error.report)
    reason = printable(str(error))
    sentence = reason if reason.endswith((".", "?")) else f"{reason}."
    log.error("the change can't be used: %s The models and code loaded before go on serving.", sentence)


def shown(files: Sequence[Path]) -> str:
    names = [printable(path.name) for path in files[:SHOWN_FILES]]
    more = len(files) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
