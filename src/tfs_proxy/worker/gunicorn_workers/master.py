"""Master of gunicorn that starts a worker in place of one before that ends: run as a module for gunicorn.

gunicorn itself starts a worker only once another has ended. A worker with calls that hang asks for one by the
successor's byte, in the file that gunicorn has of it, and ends once the supervisor tells it to.
"""

import logging
import os
import signal
import sys

from gunicorn.app.wsgiapp import WSGIApplication
from gunicorn.arbiter import Arbiter

from tfs_proxy.values.processes import end_group_at
from tfs_proxy.wire.shortages import shortage

NOT_STARTED = 3
"""Exit status of gunicorn if no worker can be started."""


class Master(Arbiter):  # type: ignore[misc]  # gunicorn has no types
    """Arbiter for which a worker that asks for another one does not count."""

    log: logging.Logger

    def init_signals(self) -> None:
        """Let SIGQUIT end all at once, which Linux sends when the supervisor has died."""
        super().init_signals()
        end_group_at(signal.SIGQUIT)

    def manage_workers(self) -> None:
        """Keep the number of workers; ends if none can be started."""
        successors = sum(os.fstat(worker.tmp.fileno()).st_size for worker in self.WORKERS.values())
        self.num_workers = self.cfg.workers + successors
        try:
            super().manage_workers()
        except OSError as error:
            if not self.WORKERS:
                print(shortage(error) or error, file=sys.stderr)  # noqa: T201 - the supervisor says it last
                sys.exit(NOT_STARTED)
            self.log.warning("no other worker can be started yet: %s", shortage(error) or error)


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
