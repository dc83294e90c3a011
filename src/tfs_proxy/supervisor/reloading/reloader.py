"""The loop of ``serve --reload``: look, wait until a change is whole, load it in new workers, report."""

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import Path

from tfs_proxy.errors import ArchiveError, ScriptLoadError
from tfs_proxy.layout import ModelLayout
from tfs_proxy.names import printable
from tfs_proxy.supervisor.reloading.code_files import Snapshot, changed_files
from tfs_proxy.supervisor.reloading.code_source import CodeSource
from tfs_proxy.supervisor.reloading.worker_exchange import WorkerExchange
from tfs_proxy.supervisor.run_loop import cancel

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.2
SETTLED_SECONDS = 0.05
"""A change is whole once nothing has changed for so long: editors write several files, git many."""

SHARE_OF_TIME = 0.1
"""Of a core at most for looking: a folder of many files is looked at less often."""

SHOWN_FILES = 3
GOES_ON = "The workers that loaded the code before go on serving."


class Reloader:
    """Follows the code of ``layout`` by ``source`` from the moment that it is made."""

    def __init__(self, source: CodeSource, layout: ModelLayout, exchange: WorkerExchange) -> None:
        self._source, self._layout, self._exchange = source, layout, exchange
        self._had_script = layout.script.is_file()
        self._loaded: Snapshot = source.look()
        self._look_seconds = LOOK_SECONDS

    async def run(self) -> None:
        """Load each change in new workers; a change during that begins it anew."""
        while True:
            snapshot = await self._whole_change()
            changed = changed_files(self._loaded, snapshot)
            self._loaded = snapshot
            loading = asyncio.create_task(self._load(changed))
            changing = asyncio.create_task(self._whole_change())
            try:
                await asyncio.wait({loading, changing}, return_when=asyncio.FIRST_COMPLETED)
                if loading.done():
                    loading.result()
            finally:
                await cancel(loading, changing)

    async def _whole_change(self) -> Snapshot:
        """Wait until files differ from those that were loaded last, and have stopped changing."""
        while True:
            await asyncio.sleep(self._look_seconds)
            snapshot = await self._look()
            while snapshot != self._loaded:
                await asyncio.sleep(SETTLED_SECONDS)
                before, snapshot = snapshot, await self._look()
                if snapshot == before:
                    return snapshot

    async def _look(self) -> Snapshot:
        began = time.monotonic()
        snapshot = await asyncio.to_thread(self._source.look)
        self._look_seconds = max(LOOK_SECONDS, (time.monotonic() - began) / SHARE_OF_TIME)
        return snapshot

    async def _load(self, changed: Sequence[Path]) -> None:
        log.info("%s changed: loading the code in new workers", shown(changed))
        began = time.monotonic()
        try:
            async with self._source.put_in_place(changed):
                self._refuse_unusable(changed)
                await self._exchange.replace_workers()
        except (ArchiveError, ScriptLoadError, OSError) as error:
            _report(error)
        else:
            log.info("the new code serves, after %.2f s", time.monotonic() - began)

    def _refuse_unusable(self, changed: Sequence[Path]) -> None:
        """Raise ScriptLoadError for what new workers alone can't take; warn of what they would not see."""
        has_script = self._layout.script.is_file()
        if has_script and not self._had_script:
            raise ScriptLoadError(f"{self._layout.shown_script} is new: start again to serve with it.")
        if self._had_script and not has_script:
            raise ScriptLoadError(f"{self._layout.shown_script} is gone: put one there.")
        if self._layout.requirements in changed:
            log.warning(
                "%s changed: start again to install what it asks for now", self._layout.requirements.name
            )


def _report(error: ArchiveError | ScriptLoadError | OSError) -> None:
    if isinstance(error, ScriptLoadError) and error.report:
        log.error("%s", error.report)
    log.error("the change can't be used: %s %s", printable(str(error)), GOES_ON)


def shown(files: Sequence[Path]) -> str:
    """The names of changed files, the first few."""
    names = [printable(path.name) for path in files[:SHOWN_FILES]]
    more = len(files) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
