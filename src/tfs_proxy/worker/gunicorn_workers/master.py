"""Master of gunicorn that replaces a worker with calls that hang: run as a module instead of gunicorn.

gunicorn itself starts a worker only once another has ended; here the new one is up first. It also ends with
the first worker that can't load the application; here it goes on as long as others serve.
"""

import logging
import os
import signal
import sys
import time
from collections.abc import Collection
from contextlib import suppress

from gunicorn.app.wsgiapp import WSGIApplication
from gunicorn.arbiter import Arbiter
from gunicorn.errors import HaltServer
from gunicorn.workers.base import Worker

from tfs_proxy.serving.parent_death import end_group_at
from tfs_proxy.serving.upstream.instances import known_workers
from tfs_proxy.settings.worker_environment import worker_workspace
from tfs_proxy.values.deployment import KnownWorkers
from tfs_proxy.values.errors import UpstreamError
from tfs_proxy.wire.shortages import shortage

BOOT_FAILED = 3
"""Exit status of gunicorn if no worker can load the application."""

RETRY_SECONDS = 5.0
"""Longest time that a worker that can't load the application keeps its place while others serve."""

ASK_SECONDS = 0.9
"""Time between two requests for reports: gunicorn looks at its workers once a second."""


class Master(Arbiter):  # type: ignore[misc]  # gunicorn has no types
    """Arbiter with two more rules: a worker that hangs does not count, one that fails ends no other."""

    log: logging.Logger

    def __init__(self, application: "Application") -> None:
        self._told_to_end: set[int] = set()
        self._failed_at: dict[int, float] = {}
        self._known = KnownWorkers()
        self._ask_at = 0.0
        super().__init__(application)

    def init_signals(self) -> None:
        """Let SIGQUIT end all at once, which Linux sends when the supervisor has died."""
        super().init_signals()
        end_group_at(signal.SIGQUIT)

    def manage_workers(self) -> None:
        """Keep the number of workers that don't hang.

        Raises HaltServer if none of them can load the application, and ends if none can be started.
        """
        self._ask()
        self._replace_failed()
        hanging = self._those(self._known.hanging)
        self.num_workers = self.cfg.workers + len(hanging)
        try:
            super().manage_workers()
        except OSError as error:
            if not self.WORKERS:
                print(shortage(error) or error, file=sys.stderr)  # noqa: T201 - the supervisor says it last
                sys.exit(BOOT_FAILED)
            self.log.warning("no other worker can be started yet: %s", shortage(error) or error)
        self._told_to_end &= self.WORKERS.keys()
        self._end(sorted(hanging, key=lambda worker: worker.age))

    def _ask(self) -> None:
        """Ask the supervisor for the workers' reports, once a second."""
        now = time.monotonic()
        if now < self._ask_at:
            return
        self._ask_at = now + ASK_SECONDS
        try:
            self._known = known_workers(worker_workspace().control_socket)
        except UpstreamError:
            return  # the supervisor is busy

    def _end(self, hanging: list[Worker]) -> None:
        """End those that hang, each once there are enough others that serve.

        They finish their other requests; gunicorn's timeout is for those that do not even end.
        """
        serving = self._those(self._known.serving)
        waiting = [worker for worker in hanging if worker.pid not in self._told_to_end]
        for worker in waiting[: max(len(serving) + len(waiting) - self.cfg.workers, 0)]:
            self.log.warning(
                "worker %d has calls that hang, and ends: another one serves in its place", worker.pid
            )
            self._told_to_end.add(worker.pid)
            _end(worker.pid)

    def _replace_failed(self) -> None:
        """Make other workers retry a failed load, after a while. Raises HaltServer if all failed."""
        failed = self._those(self._known.failed)
        if failed and len(failed) == len(self.WORKERS):
            raise HaltServer("no worker can load the application", BOOT_FAILED)
        now = time.monotonic()
        self._failed_at = {worker.pid: self._failed_at.get(worker.pid, now) for worker in failed}
        for pid, since in self._failed_at.items():
            if now - since > RETRY_SECONDS:
                _end(pid)

    def _those(self, pids: Collection[int]) -> list[Worker]:
        return [worker for pid, worker in self.WORKERS.items() if pid in pids]


def _end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


class Application(WSGIApplication):  # type: ignore[misc]  # gunicorn has no types
    """Command line of gunicorn with our master."""

    def run(self) -> None:
        try:
            Master(self).run()
        except RuntimeError as error:
            sys.exit(f"gunicorn can't be started: {error}")


def main() -> None:
    """Run gunicorn with the words of the command line until it ends."""
    Application("%(prog)s [OPTIONS] [APP_MODULE]").run()


if __name__ == "__main__":
    main()
