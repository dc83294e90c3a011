"""What gunicorn's master does when a worker has ended; gunicorn reads this module as its configuration."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tfs_proxy.web.workers.request_journal import under_way
from tfs_proxy.worker_environment import WorkerEnvironment

KEPT_RECORDS = 64
"""Records of dead workers. nginx repeats a request as soon as a worker is gone."""


def child_exit(server: Any, worker: Any) -> None:
    """Log how many requests the worker had begun: their clients get 502."""
    folder = Path(WorkerEnvironment.from_env().journal_folder)
    record = folder / str(worker.pid)
    count = under_way(record)
    if count:
        requests = f"{count} request{'s' if count > 1 else ''}"
        server.log.error(
            "worker %d ended with %s in progress: those without an answer get 502, and are not sent again",
            worker.pid,
            requests,
        )
    if record.exists():
        os.utime(record)
        _forget_old(folder, server.WORKERS)


def _forget_old(folder: Path, alive: Collection[int]) -> None:
    dead = [record for record in folder.iterdir() if int(record.name) not in alive]
    dead.sort(key=lambda record: record.stat().st_mtime_ns)
    for record in dead[:-KEPT_RECORDS]:
        record.unlink()
