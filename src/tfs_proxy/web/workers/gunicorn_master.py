"""gunicorn whose master replaces a worker with calls that hang: run as a module, in place of gunicorn.

gunicorn itself starts a worker only once another has ended; here the new one is up first. It also ends with
the first worker that can't load the application; here it goes on as long as others serve. gunicorn reads
this module as its configuration, too: `child_exit` and `logger_class` are settings.
"""

import logging
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gunicorn.app.wsgiapp import WSGIApplication
from gunicorn.arbiter import Arbiter
from gunicorn.errors import HaltServer
from gunicorn.glogging import Logger
from gunicorn.workers.base import Worker
from msgspec import Struct

from tfs_proxy.deployment import Deployment
from tfs_proxy.errors import UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.observe.journal_notes import under_way
from tfs_proxy.observe.logs.config import FollowedLevel
from tfs_proxy.upstream.instances import fetch_deployment
from tfs_proxy.web.workers.first_demand import FirstDemand
from tfs_proxy.web.workers.heartbeat import Heartbeat
from tfs_proxy.web.workers.late_calls import FAILED, HANGS, SERVES, marked
from tfs_proxy.web.workers.worker_log import gunicorn_handler
from tfs_proxy.worker_environment import worker_workspace

BOOT_FAILED = 3
"""gunicorn's exit status if no worker can load the application."""

RETRY_SECONDS = 5.0
"""How long a worker that can't load the application keeps its place, while others serve."""

SLOW_LOAD_SECONDS = 1.0
"""A script that takes longer to load would let the requests wait that need a second worker."""

KEPT_RECORDS = 64
"""Records of dead workers. nginx repeats a request as soon as a worker is gone."""


class QuietLogger(Logger):  # type: ignore[misc]  # gunicorn has no types
    """Logs at ``debug`` what gunicorn logs at ``info``: which workers start and end, where it listens.

    Its entries have the form of all others.
    """

    def setup(self, cfg: Any) -> None:
        """Take gunicorn's settings, but for the handler."""
        super().setup(cfg)
        self.error_log.handlers = [gunicorn_handler(worker_workspace().logging)]

    def close_on_exec(self) -> None:
        """Nothing: Python itself closes files on exec (PEP 446), and gunicorn logs to none.

        PERF: gunicorn looks at every logger, which takes each worker 0.7 MB of what it shares with others.
        """

    def info(self, msg: str, *args: Any, **kwargs: Any) -> None:
        """A step of gunicorn's."""
        self.debug(msg, *args, **kwargs)


logger_class = QuietLogger


def child_exit(server: Any, worker: Any) -> None:
    """Log how many requests a worker that has ended had begun: their clients get 502."""
    journal = worker_workspace().journal
    record = journal / str(worker.pid)
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
        _forget_old(journal)


def _forget_old(journal: Path) -> None:
    """Remove the oldest records of workers that have ended; another gunicorn's may serve, too."""
    dead = [record for record in journal.iterdir() if not _lives(int(record.name))]
    dead.sort(key=lambda record: record.stat().st_mtime_ns)
    for record in dead[:-KEPT_RECORDS]:
        record.unlink()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class OnDemand(Struct, frozen=True):
    """How workers start that do so once requests need them.

    There are as many as ``at_first`` says, none or one, then twice as many after each SIGTTIN of a worker.
    The first request that waits for the first worker has it started, after ``prepare``. If they load a
    ``script`` that takes long, all start.
    """

    at_first: int
    script: bool
    prepare: Callable[[], object] | None = None


def on_demand(deployment: Deployment, prepare: Callable[[], object] | None = None) -> OnDemand | None:
    """How the workers of ``deployment`` start on demand; None if all start at once."""
    if deployment.workers_at_first is None:
        return None
    return OnDemand(deployment.workers_at_first, deployment.script is not None, prepare)


class Master(Arbiter):  # type: ignore[misc]  # gunicorn has no types
    """The arbiter with two more rules: a worker that hangs does not count, one that fails ends no other.

    All workers start at once unless ``how`` says otherwise.
    """

    log: logging.Logger

    def __init__(self, application: "Application", how: OnDemand | None = None) -> None:
        self._told_to_end: set[int] = set()
        self._failed_at: dict[int, float] = {}
        self._level = FollowedLevel(worker_workspace().logging)
        super().__init__(application)
        self._wanted, self._said = int(self.cfg.workers), -1
        self._heartbeat: Heartbeat | None = None
        self._first_demand: FirstDemand | None = None
        self._prepare: Callable[[], object] | None = None
        self._all_from = math.inf
        if how is not None:
            self._heartbeat = Heartbeat(worker_workspace().heartbeat_socket)
            self._wanted = how.at_first
            self._prepare = how.prepare
            if how.script:
                self._all_from = time.monotonic() + SLOW_LOAD_SECONDS

    def start(self) -> None:
        """As gunicorn's; from here on signals are handled, and requests may wait at the listeners."""
        super().start()
        if not self._wanted:
            self._first_demand = FirstDemand(self.LISTENERS, worker_workspace().control_socket)

    def wait_for_signals(self, timeout: float = 1.0) -> list[signal.Signals]:
        """As gunicorn's; the first request ends it, too, if there is no worker yet."""
        if self._first_demand is not None and self.SIG_QUEUE.empty():
            if self._first_demand.waits(timeout):
                self._first_demand.close()
                self._first_demand = None
                self._prepare_worker()
                self._wanted = 1
            timeout = 0.0
        return list(super().wait_for_signals(timeout))

    def _prepare_worker(self) -> None:
        if self._prepare is None:
            return
        try:
            self._prepare()
        except Exception as error:  # noqa: BLE001 - a worker tries again, and reports it
            self.log.debug("not prepared: %s", error)

    def handle_ttin(self) -> None:
        """Start as many workers more as serve, unless there are all, or some that are about to serve."""
        if self._heartbeat is not None and len(self._marked(SERVES)) >= self._wanted < self.cfg.workers:
            self._wanted = min(2 * self._wanted, self.cfg.workers)
        self.manage_workers()

    def _start_all_if_slow(self) -> None:
        """Start all workers if the first one takes long to load the script."""
        if self._all_from < math.inf and self._marked(SERVES):
            self._all_from = math.inf
        elif time.monotonic() > self._all_from:
            self._wanted = self.cfg.workers

    def _say_wanted(self) -> None:
        """Tell the supervisor how many workers there should be; of the first once it serves.

        Until then the run is as healthy as it was without one.
        """
        is_first = self._said == 0 and not self._marked(SERVES)
        if self._heartbeat is not None and self._said != self._wanted and not is_first:
            self._said = self._wanted
            self._heartbeat.say_wanted(self._wanted)

    def stop(self, graceful: bool = True) -> None:
        """End all workers; the sockets stay, as with systemd: gunicorn would remove files of unix sockets.

        They are the supervisor's, and the next master accepts there.
        """
        self.systemd = True
        super().stop(graceful)

    def manage_workers(self) -> None:
        """Start, and end, as many workers as there should be; those that hang don't count.

        Raises HaltServer if none of them can load the application.
        """
        self._level.follow()
        self._replace_failed()
        self._start_all_if_slow()
        hanging = self._marked(HANGS)
        self._num_workers = self._wanted + len(hanging)
        self._say_wanted()
        super().manage_workers()
        self._told_to_end &= self.WORKERS.keys()
        self._end(sorted(hanging, key=lambda worker: worker.age))

    def _end(self, hanging: list[Worker]) -> None:
        """End those that hang, each once there are enough others that serve.

        They finish their other requests; gunicorn's timeout is for those that do not even end.
        """
        serving = self._marked(SERVES)
        waiting = [worker for worker in hanging if worker.pid not in self._told_to_end]
        for worker in waiting[: max(len(serving) + len(waiting) - self._wanted, 0)]:
            self.log.warning(
                "worker %d has calls that hang, and ends: another one serves in its place", worker.pid
            )
            self._told_to_end.add(worker.pid)
            self.kill_worker(worker.pid, signal.SIGTERM)

    def _replace_failed(self) -> None:
        """Have others try what workers could not load, after a while; raises HaltServer if all failed."""
        failed = self._marked(FAILED)
        if failed and len(failed) == len(self.WORKERS):
            raise HaltServer("no worker can load the application", BOOT_FAILED)
        now = time.monotonic()
        self._failed_at = {worker.pid: self._failed_at.get(worker.pid, now) for worker in failed}
        for pid, since in self._failed_at.items():
            if now - since > RETRY_SECONDS:
                self.kill_worker(pid, signal.SIGTERM)

    def _marked(self, state: bytes) -> list[Worker]:
        return [worker for worker in self.WORKERS.values() if marked(worker.tmp) == state]


class Application(WSGIApplication):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's own command line with our master."""

    how: OnDemand | None = None

    def run(self) -> None:
        """Serve until a signal ends it."""
        try:
            Master(self, self.how).run()
        except RuntimeError as error:
            sys.exit(f"gunicorn can't be started: {error}")


def main(how: OnDemand | None = None) -> None:
    """Run gunicorn with the words of the command line until it ends; all workers start unless ``how``."""
    application = Application("%(prog)s [OPTIONS] [APP_MODULE]")
    application.how = how
    application.run()


def _of_deployment() -> OnDemand | None:
    try:
        return on_demand(fetch_deployment(worker_workspace().control_socket))
    except (UpstreamUnavailable, UpstreamTimeout):  # so say the workers
        return None


if __name__ == "__main__":
    main(_of_deployment())
