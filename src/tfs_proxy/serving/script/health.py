"""A script's own health: ``health(context)`` on a thread of its own, whenever the supervisor asks for it."""

import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from math import inf
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

import numpy as np

from tfs_proxy.model.script_syntax import HEALTH, form_of
from tfs_proxy.serving.script.load import client_text, own_line, own_report

if TYPE_CHECKING:
    # It needs formats, which gunicorn's master must not import if the model brings packages of theirs.
    from tfs_proxy.serving.script.runner import ScriptRunner

log = logging.getLogger(__name__)

ANSWER_SECONDS = 5.0
LONGEST_TEXT = 1000
_NAMED = f"{form_of(HEALTH)} of the script"
RETURNED_FALSE = f"{_NAMED} returned False"
LATE = f"{_NAMED} did not return within {ANSWER_SECONDS:g} s"


class ScriptHealth:
    """Calls of a script's ``function``, one at a time, each with a new ``context()``.

    A coroutine's time begins once the event loop of all requests comes to it: until then it has not failed.
    """

    def __init__(
        self, function: Callable[[Any], Any], context: Callable[[], Any], runner: "ScriptRunner"
    ) -> None:
        self._function = function
        self._context = context
        self._runner = runner
        self._calling = Lock()
        self._began: float | None = inf  # of a call, None once it is told that this takes too long
        self._answer: str | None = None
        self._logged = ""

    def ask(self) -> None:
        """Begin a call; one that hangs since the last time has failed again."""
        if not self._calling.acquire(blocking=False):
            self._answer = LATE if self._began is None else None
            return
        self._began = inf
        try:
            Thread(target=self._call, name=HEALTH, daemon=True).start()
        except RuntimeError as error:  # no more threads: a call that can't begin is no failure
            self._calling.release()
            log.debug("%s could not be called: %s", HEALTH, error)

    def take(self) -> str | None:
        """Return once what a call has said: why the script can't serve, or ""; None if there is no news."""
        if (began := self._began) is not None and time.monotonic() - began > ANSWER_SECONDS:
            self._began = None
            return LATE
        answer = self._answer
        self._answer = None
        return answer

    def once(self) -> str:
        """Call it once, and wait for what it says."""
        self.ask()
        until = time.monotonic() + 2 * ANSWER_SECONDS
        while (answer := self.take()) is None and time.monotonic() < until:
            time.sleep(ANSWER_SECONDS / 1000)
        return LATE if answer is None else answer

    def _call(self) -> None:
        self._began = time.monotonic()
        try:
            result = self._function(self._context())
            if inspect.isawaitable(result):
                self._began = inf
                result = self._runner.loop.wait_for(self._timed(result))
        except BaseException as error:  # noqa: BLE001 - sys.exit, too, is only an answer here
            path = self._runner.path
            fault = f"{_NAMED} failed: {client_text(error, path)}"
            if fault != self._logged:
                log.warning("%s\n%s", own_line(error, path, HEALTH), own_report(error, path))
        else:
            is_bool = isinstance(result, (bool, np.bool_))
            fault = RETURNED_FALSE if is_bool and not result else ""
        self._logged = fault
        if (began := self._began) is not None and time.monotonic() - began <= ANSWER_SECONDS:
            answer = " ".join(fault.encode("utf-8", "replace").decode().split())
            self._began = inf
            self._answer = answer[:LONGEST_TEXT]
        self._calling.release()

    async def _timed(self, awaitable: Awaitable[Any]) -> Any:
        self._began = time.monotonic()
        return await awaitable
