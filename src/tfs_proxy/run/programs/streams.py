"""The process of bidirectional streams, beside gunicorn's workers: pure."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tfs_proxy.observe.logs.config import LogConfig
from tfs_proxy.run.process import Backoff, ProcessSpec
from tfs_proxy.run.programs import gunicorn
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.layout import Workspace

PROGRAM: Final = "tfs_proxy.worker.streams"
BACKOFF: Final = Backoff(longest_seconds=1.0, tries=60)
"""Requests are answered without it, so that its deaths don't soon end the run."""

BOOT_FAILED: Final = (3,)
"""Its exit status if it can't load the script."""


def argv(settings: Settings, workspace: Workspace, workers: str, answer_seconds: float) -> tuple[str, ...]:
    """The whole command; ``workers``, HOST:PORT, have ``answer_seconds`` for a message."""
    return (
        sys.executable,
        "-m",
        PROGRAM,
        f"--socket={workspace.streams}",
        f"--control-socket={workspace.control_socket}",
        f"--workers={workers}",
        f"--message-bytes={settings.max_payload_bytes}",
        f"--idle-seconds={settings.stream_idle_seconds}",
        f"--most-streams={settings.most_streams}",
        f"--answer-seconds={answer_seconds}",
        f"--stop-seconds={settings.stop_seconds}",
        f"--log-level={settings.gunicorn_loglevel}",
    )


def process(
    settings: Settings,
    workspace: Workspace,
    workers: str,
    answer_seconds: float,
    packages: Sequence[Path],
    environ: Mapping[str, str],
    log: LogConfig,
) -> ProcessSpec:
    """The process; ``packages`` come first on its import path, and it logs as ``log`` says."""
    return ProcessSpec(
        name="streams",
        argv=argv(settings, workspace, workers, answer_seconds),
        env={**gunicorn.environment(environ, settings, workspace, packages), **log.variable()},
        pass_fds=(log.descriptor,),
        backoff=BACKOFF,
    )
