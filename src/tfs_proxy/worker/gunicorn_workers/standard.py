"""Worker classes ``gthread`` and ``sync`` of gunicorn with the additions of `base`."""

from types import FrameType

from gunicorn.workers.gthread import ThreadWorker as GunicornThreadWorker
from gunicorn.workers.sync import SyncWorker as GunicornSyncWorker

from tfs_proxy.worker.gunicorn_workers.base import ContainerWorker, end_now


class HandOverWorker(ContainerWorker, GunicornThreadWorker):  # type: ignore[misc]
    """Class ``gthread`` without nginx, for development: a client that stalls holds a thread."""

    nr_conns: int

    def set_accept_enabled(self, enabled: bool) -> None:
        """Accept or stop; at the end connections are refused at once."""
        super().set_accept_enabled(enabled)
        if not self.alive:
            for listener in self.sockets:
                listener.close()

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        """At the end wait for no call that hangs: its request was answered."""
        super().wait_for_and_dispatch_events(timeout)
        if not self.alive and self.nr_conns <= self.served.watch.hanging:
            self.nr_conns = 0


class SequentialWorker(ContainerWorker, GunicornSyncWorker):  # type: ignore[misc]
    """Class ``sync``: one request at a time.

    Its name must not end in SyncWorker: gunicorn would replace it by its own gthread class when threads are
    set.
    """

    most_hanging = 1

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End after the request in progress; at once if that one hangs."""
        if self.served.watch.hanging:
            end_now()
        super().handle_exit(sig, frame)
