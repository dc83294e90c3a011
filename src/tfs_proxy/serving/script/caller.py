"""Caller of a script, whichever of the two kinds of functions it has."""

from typing import Any, Protocol

from tfs_proxy.serving.script.context import ScriptRequest
from tfs_proxy.serving.script.health import ScriptHealth
from tfs_proxy.serving.script.load import LoadedScript
from tfs_proxy.serving.script.runner import ScriptReply, ScriptRunner


class Functions(Protocol):
    """Functions of a loaded script: `Handlers` around a model server, or `ModelFunctions` without one."""

    runner: ScriptRunner
    """Runner that calls them."""

    @property
    def script(self) -> LoadedScript:
        """The script that defines them."""

    def begin(self) -> None:
        """Call what the first request needs; raises ScriptLoadError if that fails."""

    def reply(self, request: ScriptRequest) -> ScriptReply:
        """Call them on one request; raises what `ScriptCaller.answer` does."""

    def health_context(self) -> Any:
        """Make the argument of ``health``."""

    def end(self) -> None:
        """Close what requests opened; idempotent."""


class ScriptCaller:
    """Caller of a script's functions; one per worker, used by all its threads."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._script = functions.script
        self._runner = functions.runner

    def begin(self) -> None:
        """Call ``init(context)``, or load the model; raises ScriptLoadError if that fails."""
        self._runner.begun = True
        self._functions.begin()

    def answer(self, request: ScriptRequest) -> ScriptReply:
        """Run the script on one request.

        Raises HTTPError and the runner's ``own_errors`` as the script raised them, ScriptFailure for anything
        else that it raises or returns, ScriptTimeout beyond the deadline, and the errors of the model server
        and the default conversions.
        """
        with self._runner.watch.call():
            return self._functions.reply(request)

    @property
    def health(self) -> ScriptHealth | None:
        """The script's own health, if it tells that."""
        if (function := self._script.health) is None:
            return None
        return ScriptHealth(function, self._functions.health_context, self._runner)

    def close(self) -> None:
        """Call the script's ``close()``, then close what requests opened; idempotent."""
        self._runner.close(self._script.close)
        self._functions.end()
