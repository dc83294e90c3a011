"""Configuration of gunicorn as a module: its hooks and its logger, by the names of gunicorn's settings."""

import os
from typing import Any

from gunicorn.glogging import Logger

from tfs_proxy.observe.begun_requests import forget_old, under_way
from tfs_proxy.observe.logs.entry import STDERR, EntryHandler, LogConfig
from tfs_proxy.settings.settings import inherited_environment
from tfs_proxy.settings.worker_environment import worker_workspace
from tfs_proxy.worker.gunicorn_workers.refusals import refuse_misread


class QuietLogger(Logger):  # type: ignore[misc]  # gunicorn has no types
    """Logs at ``debug`` what gunicorn logs at ``info``: starts and ends of workers, and addresses.

    Its entries have the form of all others.
    """

    def setup(self, cfg: Any) -> None:
        """Take gunicorn's settings, but for the handler: entries go directly to where the supervisor's go.

        So no worker waits for the supervisor. Only output that bypasses Python (libraries in C, programs that
        a script starts) goes through it, which makes entries of it.
        """
        super().setup(cfg)
        config = LogConfig.inherited(inherited_environment())
        if config.descriptor != STDERR:
            os.set_inheritable(
                config.descriptor, False
            )  # programs that a script starts must not keep it open
        master = os.getpid()
        of_process = EntryHandler(config, lambda: "gunicorn" if os.getpid() == master else "worker")
        self.error_log.handlers = [of_process]

    def close_on_exec(self) -> None:
        """Do nothing: Python itself closes files on exec (PEP 446), and gunicorn logs to none.

        gunicorn looks at every logger, which takes each worker 0.7 MB of what it shares with others.
        """

    def info(self, msg: str, *args: Any, **kwargs: Any) -> None:
        self.debug(msg, *args, **kwargs)


logger_class = QuietLogger


def when_ready(server: Any) -> None:
    """Keep the files of unix sockets, as with systemd: the next gunicorn accepts there."""
    server.systemd = True


def pre_request(_worker: Any, request: Any) -> None:
    """Refuse requests that can be read in two ways."""
    refuse_misread(request.headers)


def child_exit(server: Any, worker: Any) -> None:
    """Log how many requests of an ended worker were in flight: their clients get 502."""
    folder = worker_workspace().journal
    count = under_way(folder / str(worker.pid))
    if count:
        requests = f"{count} request{'s' if count > 1 else ''}"
        server.log.error(
            "worker %d ended with %s in progress: those without an answer get 502, and are not sent again",
            worker.pid,
            requests,
        )
    forget_old(folder, worker.pid)
