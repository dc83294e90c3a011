"""Configuration of gunicorn whose master imports modules before it forks workers (gthread only).

It loads the model of a script that asks for it, too, so that workers share its memory. It imports nothing
that a model may replace. If that can't be done for this model, or fails, gunicorn starts anew with the
`hooks` alone, and its workers import and load by themselves: only they report faults.
"""

import gc
import importlib
import logging
import os
import re
import sys
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from tfs_proxy.model.script_syntax import asks_for_preload
from tfs_proxy.observe.logs.entry import LogConfig
from tfs_proxy.serving.upstream.instances import fetch_deployment
from tfs_proxy.settings.settings import inherited_environment
from tfs_proxy.settings.worker_environment import METRICS_VARIABLE, worker_workspace
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.errors import UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.worker.gunicorn_workers import hooks
from tfs_proxy.worker.gunicorn_workers.hooks import child_exit, logger_class, pre_request, when_ready

__all__ = ("child_exit", "logger_class", "on_starting", "post_fork", "pre_request", "when_ready")

WORKER: Final = (
    "tfs_proxy.worker.gunicorn_workers.thread_worker",
    "tfs_proxy.worker.app",
    "tfs_proxy.worker.first_call",
    "tfs_proxy.worker.many_models",
    "tfs_proxy.worker.memory_ledger",
    "tfs_proxy.serving.upstream.binary",
    "tfs_proxy.serving.upstream.recovery",
)
"""Modules that `worker.wsgi` imports; that itself makes the application, which is the worker's own."""

SCRIPT: Final = (
    "tfs_proxy.serving.script.load",
    "tfs_proxy.serving.script.handlers",
    "tfs_proxy.serving.script.script_model",
)
"""Imports of workers with a script, in addition."""

REQUESTS: Final = ("tfs_proxy.serving.upstream.pooled_requests",)
"""Imports of workers whose script imports `requests`."""

MASTER: Final = "tfs_proxy.worker.gunicorn_workers.master"
AT_START: Final = frozenset({"sitecustomize", "usercustomize", "setproctitle", "inotify"})
"""Modules that Python and gunicorn have imported before `preload` looks, if there are any."""


_IMPORTS_REQUESTS: Final = re.compile(rb"^\s*(?:import|from)\s[^#\n]*\brequests\b", re.MULTILINE)
"""Line of a script that imports requests; if it is in a string, an unneeded import does no harm."""

_NOT_MET: Final = "preload = True can't be met, and each worker loads the model itself: %s"

_PROC: Final = Path("/proc/self")
_NOT_TO_BE_FORKED: Final = {"/libtensorflow": "TensorFlow", "/libcuda.so": "CUDA"}
"""Names for the log, by library, of what does not work in a process forked after its import."""


def on_starting(server: Any) -> None:
    """Import, and load the model that may be shared, before the first worker is forked."""
    asked = False
    try:
        deployment = fetch_deployment(worker_workspace().control_socket)
        asked = deployment.script_model is not None and asks_for_preload(Path(deployment.script or ""))
        modules = [*WORKER] if deployment.script is None else [*WORKER, *SCRIPT]
        if deployment.script and _IMPORTS_REQUESTS.search(Path(deployment.script).read_bytes()):
            modules += REQUESTS
        preload(modules, names_of_model(deployment))
        if asked:
            _load_model(deployment, server.log.error_log)
    except (UpstreamUnavailable, UpstreamTimeout):
        pass  # the workers report it
    except ModelHasModule as error:
        if asked:
            server.log.warning(_NOT_MET, f"code/ or its packages have {error}, as we do")
        _start_anew()
    except NotToBeForked as error:
        server.log.warning(_NOT_MET, error)
        _start_anew()
    except (Exception, SystemExit):  # noqa: BLE001 - a worker will report it
        _start_anew()


def _start_anew() -> None:
    """Become a gunicorn with the `hooks` alone."""
    os.set_inheritable(LogConfig.inherited(inherited_environment()).descriptor, True)
    words = [word.replace(f"python:{__name__}", f"python:{hooks.__name__}") for word in sys.argv[1:]]
    os.execv(sys.executable, [sys.executable, "-m", MASTER, *words])  # noqa: S606 - needs no shell


def post_fork(_server: Any, _worker: Any) -> None:
    """Seed numpy's global generator anew in a worker, as Python does its own."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


class NotToBeForked(Exception):
    """Threads, descriptors or libraries that ``model_fn`` has left would be broken, or shared, in forks."""


def _load_model(deployment: Deployment, error_log: logging.Logger) -> None:
    """Load script and model once for all workers. Raises NotToBeForked, and what the script raises."""
    from tfs_proxy.serving.script.script_model import load_model_for_forks
    from tfs_proxy.worker.gunicorn_workers.request_observers import WorkerLog

    printed = WorkerLog(error_log)
    before = _held()
    folder = deployment.script_model or ""
    is_loaded = load_model_for_forks(deployment.script or "", deployment.import_paths, folder)
    printed.finish()
    if not _held().keys() <= before.keys():
        # OpenBLAS ends its idle threads before a fork, and begins them when needed.
        if not (child := os.fork()):
            os._exit(0)
        os.waitpid(child, 0)
    after = _held()
    libraries = (_PROC / "maps").read_text()
    new = after.keys() - before.keys()
    for number in (int(what.split()[1]) for what in new if what.startswith("descriptor")):
        os.set_inheritable(number, False)
    names = sorted({after[what] for what in new}) + ([] if is_loaded else ["an async def"])
    names += [name for library, name in _NOT_TO_BE_FORKED.items() if library in libraries]
    if names:
        raise NotToBeForked(f"once it is loaded, there is what forks would break: {', '.join(names)}")
    gc.collect()
    gc.freeze()


def _held() -> Mapping[str, str]:
    """Threads and descriptors of this process, each with its name for the log."""
    names = {str(thread.native_id): thread.name for thread in threading.enumerate()}
    tasks = (task.name for task in (_PROC / "task").iterdir())
    held = {f"thread {task}": f"thread {names.get(task, task)}" for task in tasks}
    metrics = Path(inherited_environment().get(METRICS_VARIABLE, os.devnull)).resolve()
    for descriptor in (_PROC / "fd").iterdir():
        with suppress(OSError):  # it is the one that lists them
            # prometheus_client opens its files anew in a forked process.
            if not (link := descriptor.readlink()).is_relative_to(metrics):
                held[f"descriptor {descriptor.name} {link}"] = str(link)
    return held


def names_of_model(deployment: Deployment) -> set[str]:
    """Top-level modules of the folders that came with the model, or were installed for it.

    Raises OSError if one can't be read.
    """
    installed = [Path(path) for path in sys.path if Path(path).is_relative_to(worker_workspace().packages)]
    folders = [*installed, *map(Path, deployment.import_paths)]
    entries = (entry for folder in folders if folder.is_dir() for entry in folder.iterdir())
    return {entry.name.partition(".")[0] for entry in entries}


class ModelHasModule(BaseException):
    """The model has a module of this name, too; no library takes this exception for a missing module."""


class LookedUp(MetaPathFinder):
    """Finder that notes the top-level modules to be imported. Raises `ModelHasModule` for the model's."""

    def __init__(self, of_model: Collection[str]) -> None:
        self.names: set[str] = set()
        self._of_model = of_model

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> None:
        name = fullname.partition(".")[0]
        self.names.add(name)
        if name in self._of_model:
            raise ModelHasModule(name)


def preload(modules: Iterable[str], of_model: Collection[str] = ()) -> set[str]:
    """Import ``modules``, and keep the garbage collector from pages that forked processes share.

    Returns the top-level names that were looked for. Raises ModelHasModule if one of them is in ``of_model``,
    and any exception of an import; the process is not fit for workers then.
    """
    finder = LookedUp(of_model)
    sys.meta_path.insert(0, finder)
    gc.disable()  # imports leave little to collect, and looking for it took 40 ms
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
    """Top-level names of all modules that this process has imported, or would have at its start."""
    return {name.partition(".")[0] for name in sys.modules} | AT_START
