"""Runs the functions of a user's script, async ones too, and turns what they raise into answers."""

import copy
import inspect
import json
import logging
from collections.abc import Callable
from typing import Any, Self

from msgspec import Struct

from tfs_proxy.errors import RequestError, ScriptFailure
from tfs_proxy.observe.logs.reasons import model_server_reason
from tfs_proxy.observe.request_record import INPUT_HANDLER, MODEL_SERVER, OUTPUT_HANDLER, stage
from tfs_proxy.script.deadline import DeadlineWatch
from tfs_proxy.script.event_loop import WorkerLoop
from tfs_proxy.script.tracebacks import client_text, own_line, own_report
from tfs_proxy.script.values import HTTPError

log = logging.getLogger(__name__)

_STAGES = {"predict_fn": MODEL_SERVER, "output_handler": OUTPUT_HANDLER, "output_fn": OUTPUT_HANDLER}


def stage_of(function: str) -> int:
    """The stage of a request that the time of a script's function counts as."""
    return _STAGES.get(function, INPUT_HANDLER)


class ServerRefusal(Struct, frozen=True):
    """The model server's error that a script is called with: its status, and its words if it gave any."""

    status: int
    words: str

    @property
    def noted(self) -> str:
        """It for the log, whose words are without what the client sent."""
        reason = model_server_reason(self.words)
        return f"the model server had answered {self.status}{': ' if reason else ''}{reason}"

    def then(self, failure: str, text: str) -> HTTPError:
        """The client's error if the script then fails, with ``text`` of its own: the words come once."""
        quoted = (json.dumps(self.words, ensure_ascii=False), json.dumps(self.words), repr(self.words))
        has_words = any(form in text for form in (self.words, *(form[1:-1] for form in quoted)))
        error = HTTPError(self.status, text if has_words else f"{self.words} (then {failure})")
        said = model_server_reason(text if has_words else self.words)
        error.reason = said if has_words else f"{said} (then {failure})"
        return error


class ScriptRunner:
    """Calls functions of the script at ``path``; one per worker, used by all its threads.

    ``own_errors`` are exceptions that a script may raise to be answered as they are. ``watch`` ends calls
    that are over their deadline; without it there is none. ``begun`` says that the script has to be told
    of the end.
    """

    def __init__(
        self,
        path: str,
        own_errors: tuple[type[Exception], ...] = (),
        watch: DeadlineWatch | None = None,
    ) -> None:
        self.path = path
        self.loop = WorkerLoop()
        self.begun = False
        self.watch = watch or DeadlineWatch()
        self._refusal: Callable[[], ServerRefusal | None] = lambda: None
        self._left_alone: tuple[type[BaseException], ...] = (RequestError, *own_errors)

    def after(self, refusal: Callable[[], ServerRefusal | None]) -> Self:
        """The same runner for functions that see the model server's answer.

        If that is a ``refusal``, a failure of the script goes out with its status and words.
        """
        runner = copy.copy(self)
        runner._refusal = refusal  # noqa: SLF001 - a copy of its own
        return runner

    def call(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call one of the script's functions, and wait for its result if it is a coroutine.

        What it raises becomes the answer, and a line in the log: HTTPError, other errors of ours and
        ``own_errors`` as they are, anything else as ScriptFailure.
        """
        try:
            with stage(stage_of(name), name):
                result = function(*arguments)
                if not inspect.isawaitable(result):
                    return result
                return self.loop.run(result, self.watch.current(), arguments)
        except self._left_alone:
            raise
        except BaseException as error:
            if self.watch.interrupted():
                raise self.watch.timeout() from None
            # Not Exception alone: sys.exit or a cancelled task in a script must not end the worker.
            # A subclass of SystemExit is the worker's own end, which arises in whatever code runs.
            if isinstance(error, SystemExit) and type(error) is not SystemExit:
                raise
            raise self._failure(name, error) from error

    def close(self, function: Callable[[], Any] | None) -> None:
        """Call the script's ``close()`` if it has one, and end the event loop; idempotent."""
        if self.begun and function is not None:
            self.begun = False
            try:
                self.call("close", function)
            except Exception as error:  # noqa: BLE001 - the worker ends all the same
                log.warning("%s: close() failed: %s", self.path, error)
        self.loop.close()

    def complain(self, error: ScriptFailure) -> RequestError:
        """Name the script in the log if what it returned is unusable; the error to raise."""
        refusal = self._refusal()
        if refusal is None:
            log.error("%s: %s", self.path, error)
            return error
        log.warning("%s: %s (%s)", self.path, error, refusal.noted)
        return refusal.then(str(error), str(error))

    def _failure(self, name: str, error: BaseException) -> RequestError:
        line, text, refusal = own_line(error, self.path, name), client_text(error, self.path), self._refusal()
        if refusal is None:
            log.error("%s\n%s", line, own_report(error, self.path))
            return ScriptFailure(text)
        log.warning("%s (%s)", line, refusal.noted)
        return refusal.then(f"{name} failed: {text}", text)
