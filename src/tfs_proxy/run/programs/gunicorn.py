"""The process of gunicorn, which runs the workers: arguments and environment."""

import math
import os
import select
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tfs_proxy.observe.logs.entry import LogConfig
from tfs_proxy.run.process import ProcessSpec
from tfs_proxy.settings.settings import Settings
from tfs_proxy.settings.worker_environment import METRICS_VARIABLE, WORKSPACE_VARIABLE
from tfs_proxy.values.layout import Workspace

PROGRAM = "tfs_proxy.worker.gunicorn_workers.master"
HOOKS = "tfs_proxy.worker.gunicorn_workers.hooks"
PRELOAD = "tfs_proxy.worker.gunicorn_workers.preload"
"""Hooks for the classes whose workers keep their master's imports: other classes patch modules."""

APPLICATION = "tfs_proxy.worker.wsgi:app"
BEHIND_NGINX = "tfs_proxy.worker.gunicorn_workers.thread_worker.ThreadWorker"
"""The class that replaces `gthread` for requests from nginx, which sends none that stall."""

WORKER_CLASSES = {
    "gthread": "tfs_proxy.worker.gunicorn_workers.standard.HandOverWorker",
    "sync": "tfs_proxy.worker.gunicorn_workers.standard.SequentialWorker",
    "gevent": "tfs_proxy.worker.gunicorn_workers.gevent.GeventWorker",
}
MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - gunicorn's file of each worker
KEEP_ALIVE_SECONDS = 75
MEMORY_SETTINGS: Mapping[str, str] = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(8 * 1024 * 1024),
    "MALLOC_TRIM_THRESHOLD_": str(16 * 1024 * 1024),
}
"""Glibc keeps 16 MB for each of two arenas. Else it gives each body's memory back to the kernel, and
finding the pages again for the next takes half of the time of a body of 3 MB (benchmarks/README.md)."""

BOOT_FAILED = (3, 4)
"""The exit statuses of gunicorn if the application can't be loaded."""


def argv(settings: Settings, listener_fds: Sequence[int], *, behind_nginx: bool = True) -> tuple[str, ...]:
    """The whole command; gunicorn accepts on the inherited ``listener_fds``."""
    name = settings.gunicorn_worker_class
    has_threads = name == "gthread"
    in_place = has_threads and behind_nginx and hasattr(select, "epoll")
    return (
        sys.executable,
        "-m",
        PROGRAM,
        APPLICATION,
        f"--config=python:{PRELOAD if has_threads else HOOKS}",
        *(f"--bind=fd://{descriptor}" for descriptor in listener_fds),
        f"--workers={settings.gunicorn_workers}",
        f"--threads={settings.gunicorn_threads}",
        f"--worker-class={BEHIND_NGINX if in_place else WORKER_CLASSES[name]}",
        "--timeout=0",  # the supervisor hears workers, and ends those that are silent
        f"--graceful-timeout={max(math.ceil(settings.stop_seconds), 1)}",
        f"--keep-alive={KEEP_ALIVE_SECONDS}",
        f"--log-level={settings.gunicorn_loglevel}",
        "--http-parser=python",
        "--no-control-socket",
        "--forwarded-allow-ips=",  # no client may set SCRIPT_NAME or the scheme by a header
        "--limit-request-line=8190",
        *(("--worker-tmp-dir", str(MEMORY_FOLDER)) if os.access(MEMORY_FOLDER, os.W_OK) else ()),
    )


def environment(
    base: Mapping[str, str], settings: Settings, workspace: Workspace, paths: Sequence[Path]
) -> dict[str, str]:
    """``base`` with variables for workers: their workspace, and the folder of installed packages."""
    defaults = {"OMP_NUM_THREADS": str(settings.omp_num_threads), METRICS_VARIABLE: str(workspace.metrics)}
    env = {**defaults, **MEMORY_SETTINGS, **base, WORKSPACE_VARIABLE: str(workspace.root)}
    env.pop("SCRIPT_NAME", None)  # gunicorn would take it for where its application is mounted
    python_path = [*map(str, paths), *filter(None, [base.get("PYTHONPATH")])]
    if python_path:
        env["PYTHONPATH"] = ":".join(python_path)
    return env


def gunicorn_process(
    settings: Settings,
    workspace: Workspace,
    listener_fds: Sequence[int],
    packages: Sequence[Path],
    environ: Mapping[str, str],
    log: LogConfig,
    *,
    behind_nginx: bool = True,
) -> ProcessSpec:
    """gunicorn on the inherited listeners; ``packages`` come first on its import path.

    It logs as ``log`` says.
    """
    return ProcessSpec(
        name="gunicorn",
        argv=argv(settings, listener_fds, behind_nginx=behind_nginx),
        env={**environment(environ, settings, workspace, packages), **log.variable()},
        pass_fds=(*listener_fds, log.descriptor),
        orphaned_signal=signal.SIGQUIT,  # its process group ends at once
    )
