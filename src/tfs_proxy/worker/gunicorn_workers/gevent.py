"""Worker class ``gevent``: imported only if it is configured, since gevent is an extra."""

from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import gevent
import grpc.experimental.gevent
from gunicorn.workers.ggevent import GeventWorker as GunicornGeventWorker

from tfs_proxy.serving.script.deadline import Lane, frames_from
from tfs_proxy.worker.gunicorn_workers.base import ContainerWorker, end_sending

LINGER_SECONDS = 1.0
LINGER_BYTES = 64 * 1024


class Expired(BaseException):
    """Exception that ends a greenlet whose call is over its deadline: no ``except Exception`` stops it."""


class GreenletLane(Lane):
    """Greenlet that makes a call; one that never yields can't be ended, and blocks all others."""

    def __init__(self) -> None:
        self._greenlet = gevent.getcurrent()

    def frames(self) -> tuple[FrameType, ...]:
        """Frames of the greenlet; it is suspended, since another greenlet runs."""
        return frames_from(self._greenlet.gr_frame)

    def cancel(self, unless_over: Callable[[], bool]) -> None:
        """Raise an exception in the greenlet as soon as the event loop runs it."""

        def throw() -> None:
            if not unless_over():
                self._greenlet.throw(Expired())

        gevent.get_hub().loop.run_callback(throw)


class GeventWorker(ContainerWorker, GunicornGeventWorker):  # type: ignore[misc]
    """Greenlets over a monkey-patched standard library, gRPC included."""

    new_lane = GreenletLane

    @property
    def most_hanging(self) -> int:
        return int(self.worker_connections)

    def load_wsgi(self) -> None:
        """Make gRPC wait on gevent's loop, then load the application."""
        grpc.experimental.gevent.init_gevent()
        super().load_wsgi()

    def handle_error(self, _req: Any, client: Any, address: Any, error: BaseException) -> None:
        """Answer, then read on for a moment: closing at once would reset the connection."""
        super().handle_error(_req, client, address, error)
        with gevent.Timeout(LINGER_SECONDS, False), suppress(OSError):
            end_sending(client)
            while client.recv(LINGER_BYTES):
                pass
