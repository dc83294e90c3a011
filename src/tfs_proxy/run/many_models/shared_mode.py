"""Shared mode: the processes that all models share, and a model that the common workers serve."""

import asyncio
import os
import time
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from tfs_proxy.data.media_types import JSON
from tfs_proxy.model.report.served import Served
from tfs_proxy.run.children import Children
from tfs_proxy.run.host.sockets import unbound
from tfs_proxy.run.host.workspace import is_locked, is_path_locked
from tfs_proxy.run.many_models.model_servers import SharedModelServers
from tfs_proxy.run.nginx.many_models import COMMON_SOCKET, COMMON_WORKSPACES
from tfs_proxy.run.opening import ServeRequest
from tfs_proxy.run.plan import deployment_of
from tfs_proxy.run.programs import gunicorn
from tfs_proxy.run.readiness import Readiness
from tfs_proxy.run.run_loop import LAST_STEPS_SECONDS
from tfs_proxy.run.stack import StackHost
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.layout import ModelLayout, Workspace
from tfs_proxy.wire.http_server import BACKLOG


class SharedMode:
    """The processes are ``children`` of the run on this ``host``; its ``readiness`` follows them."""

    def __init__(self, settings: Settings, host: StackHost, children: Children, readiness: Readiness) -> None:
        self.servers = SharedModelServers(settings, host.workspace, children, readiness)
        self._settings, self._workspace, self._host = settings, host.workspace, host
        self._children, self._readiness = children, readiness
        self._listener = unbound()

    async def start(self, request: ServeRequest) -> Deployment:
        """Starts the model servers; returns the common workers' deployment."""
        await self.servers.start(request)
        nothing = Served(ModelLayout(self._workspace.root), (), "")
        deployment = deployment_of(nothing, self._settings, self.servers.instances)
        folder = self._workspace.root / COMMON_WORKSPACES
        return replace(deployment, script=None, script_model=None, many_models=str(folder))

    async def start_workers(self, environ: Mapping[str, str]) -> None:
        """Starts the workers, which get the deployment from the control API; returns once one answers."""
        settings, heartbeats = self._settings, self._readiness.heartbeats
        self._readiness.step = "starting: waiting for a worker"
        self._listener.bind(str(self._workspace.root / COMMON_SOCKET))
        self._listener.listen(BACKLOG)
        self._listener.set_inheritable(True)
        descriptors = [self._listener.fileno()]
        spec = gunicorn.process(settings, self._workspace, descriptors, (), environ, self._host.log)
        self._children.workers = self._children.start(spec, self._host.spawn_workers)
        await heartbeats.booted.wait()

    async def stop(self, deadline: float) -> None:
        """Ends the workers, whose requests have ended, and then the model servers."""
        for child in (self._children.workers, *self._children.model_servers):
            if child is not None:
                await child.stop(max(deadline - time.monotonic(), LAST_STEPS_SECONDS))
        self._listener.close()
        self.servers.close()


PAUSE_SECONDS: Final = 0.01


class CommonModel:
    """A model's ``deployment`` in ``workspace``, where `worker.many_models` reads it."""

    def __init__(self, workspace: Workspace, deployment: Deployment) -> None:
        self._path = workspace.deployment
        self._deployment = deployment

    def publish(self) -> None:
        """Lets workers answer requests for it."""
        new = self._path.with_suffix(".new")
        new.write_bytes(self._deployment.to_json())
        new.replace(self._path)

    def is_fast(self, name: str) -> bool:
        """True if TF Serving's own JSON may go directly to a model server, which calls the model ``name``."""
        deployment = self._deployment
        return deployment.default_model == name and deployment.default_accept in {None, JSON}

    def in_use(self) -> bool:
        return is_path_locked(self._path)

    async def withdraw(self, seconds: float) -> None:
        """Makes workers begin no more requests; returns once none is under way, after ``seconds`` at most."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        self._path.unlink()
        deadline = time.monotonic() + seconds
        try:
            # The kernel does not notify of released locks.
            while is_locked(descriptor) and time.monotonic() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            os.close(descriptor)
