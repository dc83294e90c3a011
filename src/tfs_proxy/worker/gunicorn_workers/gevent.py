"""Worker class ``gevent``: imported only if it is configured, since gevent is an extra."""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from socket import SHUT_WR
from types import FrameType, ModuleType
from typing import Any

import gevent
from gunicorn.workers.ggevent import GeventWorker as GunicornGeventWorker

from tfs_proxy.serving.script.deadline import Lane, frames_from
from tfs_proxy.worker.gunicorn_workers.base import ContainerWorker

_GRPC = "grpc"


class GrpcOnGevent(MetaPathFinder):
    """Finder that sets up grpc once it is imported: before its first channel."""

    @classmethod
    def install(cls) -> None:
        """Wait for the import, or set up at once if it has been imported."""
        if _GRPC in sys.modules:
            _set_up()
        else:
            sys.meta_path.insert(0, cls())

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the spec of grpc, its loader followed by the set-up; None for any other module."""
        if fullname != _GRPC:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _SettingUp(spec.loader)
        return spec


class _SettingUp(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        _set_up()


def _set_up() -> None:
    from grpc.experimental import gevent

    gevent.init_gevent()


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
        """Make gRPC wait on gevent's loop if a script imports it, then load the application."""
        GrpcOnGevent.install()
        super().load_wsgi()

    def handle_error(self, _req: Any, client: Any, address: Any, error: BaseException) -> None:
        """Answer, then read on for a moment: closing at once would reset the connection."""
        super().handle_error(_req, client, address, error)
        with gevent.Timeout(LINGER_SECONDS, False), suppress(OSError):
            client.shutdown(SHUT_WR)
            while client.recv(LINGER_BYTES):
                pass
