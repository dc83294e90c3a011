"""The process of bidirectional streams, beside gunicorn's workers: pure."""

import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tfs_proxy.observe.logs.entry import LogConfig
from tfs_proxy.run.process import Backoff, ProcessSpec
from tfs_proxy.run.programs import gunicorn
from tfs_proxy.settings.settings import Settings
from tfs_proxy.settings.worker_environment import StreamOptions, written
from tfs_proxy.values.layout import Workspace

PROGRAM: Final = "tfs_proxy.worker.streams"
BACKOFF: Final = Backoff(longest_seconds=1.0, tries=60)
"""Requests are answered without it, so that its deaths don't soon end the run."""

BOOT_FAILED: Final = (3,)
"""Its exit status if it can't load the script."""


def process(
    settings: Settings,
    workspace: Workspace,
    workers: str,
    answer_seconds: float,
    packages: Sequence[Path],
    environ: Mapping[str, str],
    log: LogConfig,
) -> ProcessSpec:
    """The process; ``packages`` come first on its import path, and it logs as ``log`` says.

    ``workers``, HOST:PORT, have ``answer_seconds`` for a message.
    """
    options = StreamOptions(
        socket=str(workspace.streams),
        control_socket=str(workspace.control_socket),
        workers=workers,
        message_bytes=settings.max_payload_bytes,
        idle_seconds=settings.stream_idle_seconds,
        most_streams=settings.most_streams,
        answer_seconds=answer_seconds,
        stop_seconds=settings.stop_seconds,
        log_level=settings.gunicorn_loglevel,
    )
    return ProcessSpec(
        name="streams",
        argv=(sys.executable, "-m", PROGRAM, written(options)),
        env={**gunicorn.environment(environ, settings, workspace, packages), **log.variable()},
        pass_fds=(log.descriptor,),
        orphaned_signal=signal.SIGQUIT,  # its process group ends at once
        backoff=BACKOFF,
    )
