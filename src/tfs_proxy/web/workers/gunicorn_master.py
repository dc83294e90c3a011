"""gunicorn whose master replaces a worker with calls that hang: run as a module, in place of gunicorn.

gunicorn itself starts a worker only once another has ended; here the new one is up first.
"""

import logging
import signal
import sys

from gunicorn.app.wsgiapp import WSGIApplication
from gunicorn.arbiter import Arbiter
from gunicorn.workers.base import Worker

from tfs_proxy.web.workers.late_calls import HANGS, SERVES, marked


class Master(Arbiter):  # type: ignore[misc]  # gunicorn has no types
    """The arbiter with one more rule: a worker that hangs does not count."""

    log: logging.Logger

    def __init__(self, application: "Application") -> None:
        self._told_to_end: set[int] = set()
        super().__init__(application)

    def manage_workers(self) -> None:
        """Start, and end, as many workers as there should be; those that hang don't count."""
        hanging = [worker for worker in self.WORKERS.values() if marked(worker.tmp) == HANGS]
        self._num_workers = self.cfg.workers + len(hanging)
        super().manage_workers()
        self._told_to_end &= self.WORKERS.keys()
        self._end(sorted(hanging, key=lambda worker: worker.age))

    def _end(self, hanging: list[Worker]) -> None:
        """End those that hang, each once there are enough others that serve.

        They finish their other requests; gunicorn's timeout is for those that do not even end.
        """
        serving = [worker for worker in self.WORKERS.values() if marked(worker.tmp) == SERVES]
        waiting = [worker for worker in hanging if worker.pid not in self._told_to_end]
        for worker in waiting[: max(len(serving) + len(waiting) - self.cfg.workers, 0)]:
            self.log.warning(
                "worker %d has calls that hang, and ends: another one serves in its place", worker.pid
            )
            self._told_to_end.add(worker.pid)
            self.kill_worker(worker.pid, signal.SIGTERM)


class Application(WSGIApplication):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's own command line with our master."""

    def run(self) -> None:
        """Serve until a signal ends it."""
        try:
            Master(self).run()
        except RuntimeError as error:
            sys.exit(f"gunicorn can't be started: {error}")


if __name__ == "__main__":
    Application("%(prog)s [OPTIONS] [APP_MODULE]").run()
