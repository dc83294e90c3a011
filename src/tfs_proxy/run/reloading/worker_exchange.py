"""Replaces gunicorn with a new one on the same sockets, once that one's workers serve."""

import asyncio
import os
import signal
import time
from contextlib import suppress

from tfs_proxy.model.report.prepare import without_workspace
from tfs_proxy.run.heartbeats import Heartbeats
from tfs_proxy.run.process import ChildProcess, ProcessState
from tfs_proxy.run.run_loop import LAST_STEPS_SECONDS
from tfs_proxy.run.stack import Stack
from tfs_proxy.run.stack_children import SPARE_WORKERS, StackChildren
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import ScriptLoadError

LOOK_SECONDS = 0.01


class WorkerExchange:
    """Starts new workers while the old ones serve; a request finds either the old ones or the new.

    Until all of the new ones have loaded the application, the control API lets none of them accept.
    """

    def __init__(self, settings: Settings) -> None:
        self._load_seconds, self._stop_seconds = settings.wait_time_seconds, settings.stop_seconds
        self._ending: set[asyncio.Task[None]] = set()

    async def replace_workers(self, stack: Stack) -> None:
        """Returns once new workers serve; the old ones finish their requests afterwards.

        Raises ScriptLoadError, with the old workers as they were, if the new ones can't load the script.
        """
        children, heartbeats = stack.children, stack.readiness.heartbeats
        old = children.workers
        if old is None:
            return
        heartbeats.forget_loading()
        new = children.start_next_workers(old.spec)
        try:
            await self._until_all_beat(new, stack)
        except BaseException:
            new.ask_to_stop()
            new.signal_group(signal.SIGKILL)  # it has no requests to end
            await children.stop_others(new, LAST_STEPS_SECONDS)
            heartbeats.forget_loading()
            raise
        children.exchange_workers(new)
        heartbeats.forget_loading()
        self._end_later(children, old)
        streams = await children.replace_streams(self._load_seconds)
        if streams is not None:
            self._end_later(children, streams)

    def _end_later(self, children: StackChildren, former: ChildProcess) -> None:
        ending = asyncio.create_task(children.stop_others(former, self._stop_seconds))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _until_all_beat(self, new: ChildProcess, stack: Stack) -> None:
        children, heartbeats = stack.children, stack.readiness.heartbeats
        deadline = time.monotonic() + self._load_seconds
        while _loaded(new, heartbeats) < heartbeats.wanted:
            if heartbeats.failure is not None or new.state is ProcessState.GAVE_UP:
                raise _why_it_failed(new, stack)
            if len(heartbeats.loading) > heartbeats.wanted + SPARE_WORKERS:
                raise children.ended_by_import()
            if time.monotonic() > deadline:
                raise ScriptLoadError(
                    "the new workers are not ready within "
                    f"SAGEMAKER_TFS_WAIT_TIME_SECONDS={self._load_seconds:g}."
                )
            await asyncio.sleep(LOOK_SECONDS)


def _why_it_failed(new: ChildProcess, stack: Stack) -> ScriptLoadError:
    children, failure = stack.children, stack.readiness.heartbeats.failure
    if failure is None:
        return children.reason_of_failed_boot(new)
    text, report = (without_workspace(words, stack.workspace) for words in (failure.text, failure.report))
    return ScriptLoadError(text, report="" if children.has_logged(failure) else report)


def _loaded(gunicorn: ChildProcess, heartbeats: Heartbeats) -> int:
    """Number of gunicorn's workers that have loaded the application: they are in its process group."""
    group = gunicorn.pid
    return sum(_group_of(pid) == group for pid in heartbeats.alive) if group else 0


def _group_of(pid: int) -> int | None:
    with suppress(ProcessLookupError):
        return os.getpgid(pid)
    return None
