"""Imports before the fork what every worker would import after it, but nothing that a model may replace."""

import gc
import importlib
import sys
from collections.abc import Collection, Iterable, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Final

WORKER: Final = (
    "tfs_proxy.web.workers.threads.worker",
    "tfs_proxy.web.app",
    "tfs_proxy.web.capturing",
    "tfs_proxy.web.first_call",
    "tfs_proxy.web.many_models",
    "tfs_proxy.web.memory_ledger",
    "tfs_proxy.capture.files",
    "tfs_proxy.upstream.binary",
    "tfs_proxy.upstream.recovery",
)
"""Modules that `web.wsgi` imports; `web.wsgi` itself makes the application, which is the worker's own."""

SCRIPT: Final = (
    "tfs_proxy.script.load",
    "tfs_proxy.script.load",
    "tfs_proxy.script.handlers",
    "tfs_proxy.script.script_model",
)
"""What workers with a script import besides."""

REQUESTS: Final = ("tfs_proxy.upstream.pooled_requests",)
"""What workers import with a script that imports `requests`."""

AT_START: Final = frozenset({"sitecustomize", "usercustomize", "setproctitle", "inotify"})
"""Python and gunicorn have imported these by the time that `preload` looks, if there are any."""


class BroughtByModel(BaseException):
    """A module is about to be imported that the model has, too; no library takes it for a missing one."""


class LookedUp(MetaPathFinder):
    """Notes which top-level modules are looked for, found or not; raises `BroughtByModel` for ``brought``."""

    def __init__(self, brought: Collection[str]) -> None:
        self.names: set[str] = set()
        self._brought = brought

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> None:
        """Leave the module to the other finders."""
        name = fullname.partition(".")[0]
        self.names.add(name)
        if name in self._brought:
            raise BroughtByModel(name)


def preload(modules: Iterable[str], brought: Collection[str] = ()) -> set[str]:
    """Import ``modules``, and keep the garbage collector from pages that forked processes share.

    Returns the top-level names that were looked for. Raises BroughtByModel if one of them is in ``brought``,
    and whatever an import raises; the process is not fit for workers then.
    """
    finder = LookedUp(brought)
    sys.meta_path.insert(0, finder)
    gc.disable()  # PERF: imports leave little to collect, and looking for it took 40 ms
    try:
        for module in modules:
            importlib.import_module(module)
    finally:
        gc.enable()
        sys.meta_path.remove(finder)
    gc.collect()
    gc.freeze()
    return finder.names


def imported_names() -> set[str]:
    """The top-level names of all modules that this process has imported, or would have at its start."""
    return {name.partition(".")[0] for name in sys.modules} | AT_START


def names_in(folders: Iterable[Path]) -> set[str]:
    """The top-level names of what can be imported from ``folders``; raises OSError if one can't be read."""
    return {entry.name.partition(".")[0] for folder in folders for entry in folder.iterdir()}
