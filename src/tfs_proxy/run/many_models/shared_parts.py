"""Parts that the models of a run share: model servers and workers, and a model that these serve."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Final

from tfs_proxy.model.report.served import Served
from tfs_proxy.model.report.serving_flags import capacity
from tfs_proxy.run.host.sockets import unbound
from tfs_proxy.run.host.workspace import is_locked, is_path_locked
from tfs_proxy.run.many_models.model_servers import SharedModelServers
from tfs_proxy.run.nginx.many_models import COMMON_SOCKET, COMMON_WORKSPACES
from tfs_proxy.run.opening import ServeRequest
from tfs_proxy.run.plan import deployment_of
from tfs_proxy.run.process import ChildProcess
from tfs_proxy.run.programs import gunicorn
from tfs_proxy.run.readiness import ExpectedVersion, Readiness, ServableState
from tfs_proxy.run.run_loop import LAST_STEPS_SECONDS
from tfs_proxy.run.stack import StackHost, heartbeats_of
from tfs_proxy.run.stack_children import StackChildren
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.layout import ModelLayout, Workspace
from tfs_proxy.wire.http_server import BACKLOG
from tfs_proxy.wire.media_types import JSON

log = logging.getLogger(__name__)


class SharedReadiness(Readiness):
    """The readiness of a run with changing models: that of their common parts, whatever models there are."""

    def reason(self) -> str | None:
        """The reason why requests can't be served now; None if they can."""
        heartbeats = self.heartbeats
        return self.unready_processes() or heartbeats.lost() or heartbeats.problem() or self.missing()

    def _is_awaited(self, servable: ExpectedVersion, state: ServableState) -> bool:
        """A failed model concerns only its own requests."""
        return not state.failed and super()._is_awaited(servable, state)


class SharedParts:
    """Parts that the models of a run share: model servers, and workers for models without a script.

    ``lost`` is called for each model server that ends.
    """

    def __init__(self, settings: Settings, host: StackHost, lost: Callable[[int], None]) -> None:
        self._settings, self._workspace, self._host = settings, host.workspace, host
        self.readiness = SharedReadiness(heartbeats_of(settings, host.counts), front_down=host.front_down)
        self.children = StackChildren(
            self.readiness,
            host.workspace,
            deaths=host.deaths,
            died=self._note_death,
        )
        self.servers = SharedModelServers(settings, host.workspace, self.children, self.readiness, lost)
        self.deployment: Deployment | None = None
        self._listener = unbound()

    def serves(self, _group: str) -> bool:
        """True: there is one gunicorn for all models without a script."""
        return True

    async def start(self, request: ServeRequest) -> None:
        """Starts the model servers and the workers; returns once one of these answers."""
        log.info("Processes for all models: %s", capacity(self._settings, models=True))
        self.readiness.begin_step("starting: the model server of all models")
        await self.servers.start(request)
        nothing = Served(ModelLayout(self._workspace.root), (), "")
        folder = self._workspace.root / COMMON_WORKSPACES
        self.deployment = deployment_of(nothing, self._settings, self.servers.instances, many_models=folder)
        await self._start_workers(request.environ)

    async def _start_workers(self, environ: Mapping[str, str]) -> None:
        """Starts the workers, which get the deployment from the control API; returns once one answers."""
        self.readiness.begin_step("starting: waiting for a worker")
        self._listener.bind(str(self._workspace.root / COMMON_SOCKET))
        self._listener.listen(BACKLOG)
        self._listener.set_inheritable(True)
        descriptors = [self._listener.fileno()]
        spec = gunicorn.process(self._settings, self._workspace, descriptors, (), environ, self._host.log)
        self.children.start_workers(spec, self._host.spawn_workers)
        await self.readiness.heartbeats.booted.wait()

    async def stop(self, deadline: float) -> None:
        """Ends the workers, whose requests have ended, and then the model servers."""
        for child in (self.children.workers, *self.children.model_servers):
            if child is not None:
                await child.stop(max(deadline - time.monotonic(), LAST_STEPS_SECONDS))
        self._listener.close()
        self.servers.close()

    def _note_death(self, ended: ChildProcess) -> None:
        self.servers.note_death(ended)


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
