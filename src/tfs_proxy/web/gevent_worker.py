"""The ``gevent`` worker class: imported only when it is asked for, since gevent is an extra."""

from typing import Any

from gunicorn import util
from gunicorn.workers.ggevent import GeventWorker as GunicornGeventWorker

from tfs_proxy.web.worker import ContainerWorker


class GeventWorker(ContainerWorker, GunicornGeventWorker):  # type: ignore[misc]
    """Greenlets over a monkey-patched standard library, gRPC included."""

    def load_wsgi(self) -> None:
        """Make gRPC wait on gevent's loop before anything opens a channel, then load the application."""
        from grpc.experimental import gevent

        gevent.init_gevent()
        super().load_wsgi()

    def handle_error(self, _req: Any, client: Any, address: Any, error: BaseException) -> None:
        """As in the base, then read on for a moment: closing at once would reset the connection."""
        super().handle_error(_req, client, address, error)
        util.close_graceful(client)
