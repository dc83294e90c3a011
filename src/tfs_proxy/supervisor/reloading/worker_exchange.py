"""Replaces gunicorn with a new one on the same sockets, once that one's workers serve; used by `reloader`."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tfs_proxy.errors import ScriptLoadError
from tfs_proxy.layout import Workspace
from tfs_proxy.report.prepare import without_workspace
from tfs_proxy.supervisor.children import SPARE_WORKERS, Children
from tfs_proxy.supervisor.process import ChildProcess, ProcessState, Spawn
from tfs_proxy.supervisor.readiness import Heartbeats

LOOK_SECONDS = 0.01


class WorkerExchange:
    """Starts new workers beside the old ones; a request finds either the old ones or the new."""

    def __init__(
        self,
        children: Children,
        heartbeats: Heartbeats,
        workspace: Workspace,
        spawn: Spawn,
        *,
        load_seconds: float,
        stop_seconds: float,
    ) -> None:
        self._children, self._heartbeats, self._workspace = children, heartbeats, workspace
        self._spawn = spawn
        self._load_seconds, self._stop_seconds = load_seconds, stop_seconds
        self._ending: set[asyncio.Task[None]] = set()

    async def replace_workers(self) -> None:
        """Return once new workers serve; the old ones finish their requests afterwards.

        Raises ScriptLoadError, with the old workers as they were, if the new ones can't load the script.
        """
        old = self._children.workers
        if old is None:
            return
        self._heartbeats.forget_loading()
        with _sockets_taken_anew(self._workspace.worker_sockets):
            new = self._children.start_beside(old.spec, self._spawn)
            try:
                await self._until_all_beat(new)
            except BaseException:
                await self._children.stop_beside(new, 0)
                self._heartbeats.forget_loading()
                raise
        self._children.exchange_workers(new)
        ending = asyncio.create_task(self._children.stop_beside(old, self._stop_seconds))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _until_all_beat(self, new: ChildProcess) -> None:
        deadline = time.monotonic() + self._load_seconds
        while self._serving(new) < self._children.worker_count:
            if new.state is ProcessState.GAVE_UP:
                raise self._why_it_failed(new)
            if len(self._heartbeats.loading) > self._children.worker_count + SPARE_WORKERS:
                raise self._children.ended_by_import()
            if time.monotonic() > deadline:
                raise ScriptLoadError(
                    "the new workers are not ready within "
                    f"SAGEMAKER_TFS_WAIT_TIME_SECONDS={self._load_seconds:g}."
                )
            await asyncio.sleep(LOOK_SECONDS)

    def _why_it_failed(self, new: ChildProcess) -> ScriptLoadError:
        failure = self._heartbeats.failure
        if failure is None:
            return self._children.reason_of_failed_boot(new)
        text, report = (without_workspace(words, self._workspace) for words in (failure.text, failure.report))
        return ScriptLoadError(text, report=report)

    def _serving(self, gunicorn: ChildProcess) -> int:
        """How many of gunicorn's workers have loaded the application: they are in its process group."""
        group = gunicorn.pid
        return sum(_group_of(int(pid)) == group for pid in self._heartbeats.alive) if group else 0


def _group_of(pid: int) -> int | None:
    with suppress(ProcessLookupError):
        return os.getpgid(pid)
    return None


@contextmanager
def _sockets_taken_anew(locks: Path) -> Iterator[None]:
    """Let new workers take the sockets that old ones own, but for the case that the block raises."""
    old_locks = locks.with_name(f"{locks.name}.old")
    with suppress(FileNotFoundError):
        locks.rename(old_locks)
    try:
        yield
    except BaseException:
        with suppress(FileNotFoundError):
            old_locks.rename(locks)
        raise
    old_locks.unlink(missing_ok=True)
