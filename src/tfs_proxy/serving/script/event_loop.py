"""Event loop of a worker, in a thread of its own: it runs the ``async def`` functions of a script.

One loop for all requests, so that a client session that a script opens serves each of them. A call
costs 31 µs; ``asyncio.run`` for each would be 84 µs, and no session could be kept.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

from msgspec import Struct

from tfs_proxy.observe.request_record import require_client
from tfs_proxy.serving.script.deadline import CoroutineLane, Lane, ScriptCall

Result = TypeVar("Result")

CALL_THREADS = 64
"""Blocking calls, those of ``context.predict_async`` among them, that run at a time next to the loop."""

CLOSE_SECONDS = 5.0
LOOK_SECONDS = 0.1
"""Pause in which a thread that waits for a coroutine looks for its client."""

LOOP_THREAD = "script-loop"


class _Raised(Struct, frozen=True):
    """Exception of a script's coroutine: SystemExit must not reach the loop, which would end with it."""

    error: BaseException


class ContextExecutor(ThreadPoolExecutor):
    """Threads whose calls have the context of their caller, such as the current request.

    ``asyncio.to_thread`` hands it on by itself, ``run_in_executor`` does not.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return super().submit(copy_context().run, fn, *args, **kwargs)


class WorkerLoop:
    """Loop that runs awaitables of many threads and starts with the first of them.

    Make it in the worker, after the fork.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lane: Lane | None = None

    def wait_for(
        self, awaitable: Awaitable[Any], call: ScriptCall | None = None, subjects: Sequence[Any] = ()
    ) -> Any:
        """Wait for ``awaitable`` on the loop, in this thread's context; returns or raises its result.

        ``call`` is the call that waits for it; ``subjects`` may hold the async generator that it is the next
        piece of, which knows where it waits if ``awaitable`` does not.
        """
        subject = next((subject for subject in subjects if hasattr(subject, "ag_frame")), awaitable)
        future = asyncio.run_coroutine_threadsafe(_outcome(awaitable), self._started())
        if call is not None:
            thread = call.lane
            call.lane = CoroutineLane(subject, future, self._lane)
        try:
            while True:
                try:
                    outcome = future.result(LOOK_SECONDS)
                    break
                except TimeoutError:
                    require_client()
        except BaseException:
            future.cancel()
            raise
        finally:
            if call is not None:
                call.lane = thread
        if isinstance(outcome, _Raised):
            raise outcome.error
        return outcome

    def begin(self, coroutine: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Run a coroutine that raises no SystemExit, without waiting for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._started())

    def close(self) -> None:
        """Cancel running awaitables and end the thread; idempotent."""
        with self._lock:
            loop = self._loop
            thread = self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(CLOSE_SECONDS)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop,), name=LOOP_THREAD, daemon=True
                )
                self._thread.start()
                self._lane = Lane(self._thread.ident)
            return self._loop


async def _outcome(awaitable: Awaitable[Any]) -> Any:
    try:
        return await awaitable
    except BaseException as error:  # noqa: BLE001 - it is raised again in the thread that waits
        return _Raised(error)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    calls = ContextExecutor(CALL_THREADS, thread_name_prefix="script-call")
    loop.set_default_executor(calls)
    try:
        loop.run_forever()
        running = asyncio.all_tasks(loop)
        for task in running:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*running, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        calls.shutdown(wait=False, cancel_futures=True)
        loop.close()
