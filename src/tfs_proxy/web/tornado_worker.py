"""The ``tornado`` worker class: imported only when it is asked for, since tornado is not installed by us."""

from concurrent.futures import ThreadPoolExecutor

from gunicorn.workers.gtornado import TornadoWorker as GunicornTornadoWorker
from tornado.wsgi import WSGIContainer  # type: ignore[import-not-found]

from tfs_proxy.web.worker import ContainerWorker


class TornadoWorker(ContainerWorker, GunicornTornadoWorker):  # type: ignore[misc]
    """Tornado's HTTP server in front, threads behind it.

    Without threads one slow request would hold up the event loop, and heartbeats with it. Tornado
    parses HTTP by itself: what it refuses is a 400 without a body.
    """

    def load_wsgi(self) -> None:
        """Load the application and put it on threads."""
        super().load_wsgi()
        self.wsgi = WSGIContainer(self.wsgi, ThreadPoolExecutor(self.cfg.threads))
