"""Application of workers that serve all models without a script: an app for each, made by its first request.

The supervisor writes the deployment of each model to a file, which a worker locks while it answers a request
for the model: so a lock on the removed file shows when the last request has ended. nginx names the model.
"""

import fcntl
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from tfs_proxy.serving.script.deadline import DeadlineWatch
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.layout import Workspace
from tfs_proxy.wire.error_body import being_unloaded
from tfs_proxy.wire.header_names import SERVED_NAME, wsgi_name
from tfs_proxy.worker.app import ContainerApp
from tfs_proxy.worker.gunicorn_workers.boundary import WorkerApp, refuse

log = logging.getLogger(__name__)

_NAME = wsgi_name(SERVED_NAME)
FileId = tuple[int, int]
"""Inode of a deployment's file and its modification time, which differ between deployments."""

CreateApp = Callable[[Deployment], ContainerApp]

WsgiAnswer = Iterable[bytes]
GOING = "503 Service Unavailable"


class _ModelApp:
    """App of one model, which outlives the requests in flight."""

    def __init__(self, path: Path, app: ContainerApp, models: Collection[str]) -> None:
        self.app = app
        self.models = models
        self._path = path
        self._lock = threading.Lock()
        self._under_way = 0

    def answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> WsgiAnswer:
        with self._lock:
            self._under_way += 1
        try:
            return self.app(environ, start_response)
        finally:
            with self._lock:
                self._under_way -= 1

    def has_gone(self) -> bool:
        """True if the model has gone, and no request for it is in flight."""
        with self._lock:
            return not self._under_way and not self._path.exists()


class ManyModelsApp(WorkerApp):
    """WSGI app that passes each request to its model's; ``folder`` has the workspace of each by name.

    Nothing of it runs a script.
    """

    def __init__(self, folder: Path, create: CreateApp, forget: Callable[[str], None]) -> None:
        self.watch = DeadlineWatch()
        self.known: dict[str, _ModelApp] = {}
        self.held = ExitStack()
        self._folder = folder
        self._create = create
        self._forget = forget
        self._file_name = Workspace(folder).deployment.name
        self._apps: dict[FileId, _ModelApp] = {}
        self._making = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> WsgiAnswer:
        name = environ.pop(_NAME, "")
        path = f"{self._folder}/{name}/{self._file_name}"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return refuse(GOING, being_unloaded(name), environ, start_response)
        try:
            # Locked until it is closed.
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            status = os.fstat(descriptor)
            model_app = None
            # Removed before it was locked, it is gone: the supervisor does not wait for this request.
            if status.st_nlink:
                file_id = status.st_ino, status.st_mtime_ns
                with suppress(FileNotFoundError):
                    model_app = self._apps.get(file_id) or self._make(file_id, path)
            if model_app is None:
                return refuse(GOING, being_unloaded(name), environ, start_response)
            return model_app.answer(environ, start_response)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        for model_app in self._apps.values():
            model_app.app.close()
        self.held.close()

    def _make(self, file_id: FileId, link: str) -> _ModelApp:
        with self._making:
            if file_id in self._apps:
                return self._apps[file_id]
            path = Path(link).resolve(strict=True)
            for old_id, old in tuple(self._apps.items()):
                if old.has_gone():
                    del self._apps[old_id]
                    for name in old.models:
                        if self.known.get(name) is old:
                            del self.known[name]
                    # Its last records may take a while, and a request is waiting.
                    threading.Thread(target=old.app.close, name="close", daemon=True).start()
            deployment = Deployment.from_json(path.read_bytes())
            for model in deployment.models:
                self._forget(model)
            app = self._apps[file_id] = _ModelApp(path, self._create(deployment), deployment.models)
            self.known.update(dict.fromkeys(deployment.models, app))
            log.debug("serving %s", ", ".join(deployment.models))
            return app
