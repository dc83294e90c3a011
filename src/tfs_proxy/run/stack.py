"""One serving stack: the processes that serve one archive, behind sockets of its owner; for `run.run`.

It opens the archive, starts model servers and workers, waits until they are ready, and watches them.
"""

import asyncio
import logging
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Protocol

from msgspec import Struct

from tfs_proxy.model.report.prepare import Prepared
from tfs_proxy.observe.logs.config import LogConfig
from tfs_proxy.run.children import Children
from tfs_proxy.run.heartbeats import Heartbeats
from tfs_proxy.run.host.load_priority import LoadPriority
from tfs_proxy.run.host.sockets import Listener
from tfs_proxy.run.host.watchdog import Watchdog
from tfs_proxy.run.model_states import ModelWatch
from tfs_proxy.run.nginx import config as nginx
from tfs_proxy.run.opening import ServeRequest, find_host_resources, open_archive, plan_processes
from tfs_proxy.run.plan import HostResources, ProcessPlan
from tfs_proxy.run.process import Spawn, spawn
from tfs_proxy.run.programs import gunicorn, packages
from tfs_proxy.run.readiness import Phase, Readiness
from tfs_proxy.run.run_loop import together
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import Instance, ServedModel
from tfs_proxy.values.errors import ModelLoadError, StartTimeout
from tfs_proxy.values.layout import Workspace

log = logging.getLogger(__name__)

INSTALLING = "starting: installing packages"
ONE_OF_MANY_TICK_SECONDS = 0.25
"""Interval in which one of several serving stacks looks at its processes: each look takes 0.1 ms."""


class CommonModelServers(Protocol):
    """Model servers that have the models of many stacks."""

    @property
    def instances(self) -> tuple[Instance, ...]:
        """Their addresses, which stay the same if one is restarted."""

    async def add(self, models: Sequence[ServedModel]) -> None:
        """Returns once they have these models, too. Raises ModelLoadError if one can't be loaded."""

    async def watch_models(self, models: Sequence[ServedModel]) -> None:
        """Runs as long as these models can be asked. Raises ModelLoadError if one fails later."""

    async def remove(self, models: Sequence[ServedModel]) -> None:
        """Returns once they have let go of these models; ignores those that they don't have."""


class StackHost(Struct, frozen=True):
    """The surroundings of a stack: its folder, its watchdog, and how its workers log.

    ``spawn_workers`` is how gunicorn is started. With a ``priority`` it leaves the CPU to others until it is
    ready. With ``servers`` it has no model servers of its own, and without a script no workers either.
    """

    workspace: Workspace
    watchdog: Watchdog
    log: LogConfig
    spawn_workers: Spawn = spawn
    priority: LoadPriority | None = None
    servers: CommonModelServers | None = None


class ServingStack:
    """The model servers and workers of one archive, and how ready they are.

    Workers accept on ``web``. ``settings`` are those of the run until the archive is open, then sized for its
    models. ``of`` is the end of its processes' names, if there are several stacks.
    """

    def __init__(
        self,
        settings: Settings,
        request: ServeRequest,
        host: StackHost,
        web: Sequence[Listener],
        of: str = "",
    ) -> None:
        self.settings = settings
        self.web = tuple(web)
        self.gpus = 0
        self.has_workers = True
        self.readiness = Readiness(heartbeats_of(settings))
        self.children = Children(
            self.readiness,
            host.workspace,
            host.watchdog,
            own_exit_status=request.flags is not None,
            priority=host.priority,
        )
        self.watch = ModelWatch((), (), self.readiness)
        self._of = of
        self._held = ExitStack()  # ports that no other process may get
        self._host = host
        self._workspace = host.workspace
        self.request = request
        self._added: tuple[ServedModel, ...] = ()
        self._started_at = time.monotonic()
        self._installs = False

    async def open_archive(self) -> Prepared:
        """Finds out what is served, and sizes for it; raises as `run.opening.open_archive` does."""
        self.readiness.step = "starting: opening the model archive"
        prepared = await open_archive(self.request, self.settings, self._workspace)
        self.settings = prepared.settings
        self.readiness.heartbeats.wanted = self.settings.gunicorn_workers
        return prepared

    async def expect(self, prepared: Prepared, port: int) -> ProcessPlan:
        """Writes the configuration of the archive's processes; from here on they are expected.

        ``port`` is the one that clients know.
        """
        host = await self._resources_for(prepared)
        planned = plan_processes(prepared, self._workspace, host, port)
        self.gpus = host.gpus
        deployment = planned.deployment
        self.children.script = deployment.script
        self.has_workers = self._host.servers is None or deployment.script is not None
        self.readiness.expect(deployment.instances, deployment.models)
        self.watch = ModelWatch(deployment.instances, deployment.models, self.readiness)
        return planned

    async def _resources_for(self, prepared: Prepared) -> HostResources:
        servers = self._host.servers
        if servers is not None and prepared.models:
            return HostResources((), (), 0, self.request.environ, common=servers.instances)
        return await asyncio.to_thread(find_host_resources, self.request, prepared, self._held)

    async def start_in_time(
        self, planned: ProcessPlan, prepared: Prepared, *, every_worker: bool = False
    ) -> None:
        """Returns once everything is ready. Raises StopServing if it can't be, StartTimeout at the limit.

        One worker is enough, unless ``every_worker`` has to be.
        """
        # With flags, the model server follows its folders, which may still be filled: there is no limit.
        limit_seconds = self.settings.wait_time_seconds if self.request.flags is None else None
        try:
            async with asyncio.timeout(limit_seconds):
                await self.children.watch_during(self._become_ready(planned, prepared, every_worker))
        except TimeoutError:
            raise StartTimeout(
                f"not ready within SAGEMAKER_TFS_WAIT_TIME_SECONDS={self.settings.wait_time_seconds:g}: "
                f"{self.readiness.missing() or self.readiness.step}{self._where_scripts_load()}."
            ) from None

    def begin_serving(self) -> None:
        self.readiness.phase = Phase.SERVING
        if self._of:
            self.children.tick_seconds = ONE_OF_MANY_TICK_SECONDS
        self.children.restore_priority()
        self.readiness.steps.end()
        for server in self.children.model_servers:
            self.children.devices.log(server.name, self.gpus)

    async def watch_forever(self) -> None:
        """Watches processes and models. Raises StopServing as soon as a process gives up."""
        servers = self._host.servers
        if servers is None or not self._added:
            await self.children.watch_during(self.watch.forever())
        elif not self.has_workers:
            await servers.watch_models(self._added)
        else:
            await self.children.watch_during(self._watch_with(servers))

    async def _watch_with(self, servers: CommonModelServers) -> None:
        await together(self.watch.forever(), servers.watch_models(self._added))

    def abandon_loading(self) -> None:
        """Kills the model servers: one that is still loading would finish that before it stops."""
        for server in self.children.model_servers:
            server.ask_to_stop()
            server.signal_group(signal.SIGKILL)

    async def stop_workers(self, seconds: float) -> None:
        """Lets requests end, then ends the workers."""
        workers = [self.children.workers, *self.children.beside_workers]
        await asyncio.gather(*(child.stop(seconds) for child in workers if child is not None))

    async def stop_model_servers(self, seconds: float) -> None:
        """Ends the model servers, which get no more requests, or has common ones remove its models."""
        if self._host.servers is not None and self._added:
            await self._host.servers.remove(self._added)
        await asyncio.gather(*(server.stop(seconds) for server in self.children.model_servers))

    def close(self) -> None:
        for listener in self.web:
            listener.close()
        self.release_ports()

    def release_ports(self) -> None:
        self._held.close()

    def _where_scripts_load(self) -> str:
        lines = sorted(set(self.readiness.heartbeats.loading_lines()))
        return f"; the script is at {' and at '.join(lines)}" if lines else ""

    async def _become_ready(self, planned: ProcessPlan, prepared: Prepared, every_worker: bool) -> None:
        """Loads models, and installs and imports the script concurrently."""
        self.readiness.step = f"starting: loading the {'models' if planned.model_servers else 'script'}"
        self.children.model_servers = [
            self.children.start(spec.named(self._of)) for spec in planned.model_servers
        ]
        try:
            async with asyncio.TaskGroup() as group:
                if self.has_workers:
                    group.create_task(self._start_workers(prepared))
                group.create_task(self._models_available(prepared.models))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        if self.has_workers:
            self.readiness.step = "starting: waiting for a worker"
            await self.readiness.heartbeats.until_alive(every_worker=every_worker)

    async def _models_available(self, models: Sequence[ServedModel]) -> None:
        if self._host.servers is not None and models:
            self._added = tuple(models)
            await self._host.servers.add(models)
        await self.watch.until_available()
        failure = self.readiness.failure()
        if failure:
            raise ModelLoadError(f"{failure}.")
        if self._installs:
            self.readiness.step = INSTALLING
        if self.children.model_servers:
            log.info("all models are available after %.2f s", time.monotonic() - self._started_at)

    async def _start_workers(self, prepared: Prepared) -> None:
        environ = self.request.environ
        install = packages.plan_install(prepared.served.layout, self._workspace, prepared.settings, environ)
        if install is not None:
            log.info("installing %s", prepared.served.layout.requirements.name)
            self._installs = True  # and what takes longer, models or packages, is the step
            await packages.run(install, self.children.lower_priority)
            self._installs = False
        paths = [install.site_packages] if install is not None else []
        unusable = packages.noexec_warning([*paths, prepared.served.layout.code])
        if unusable:
            log.warning("%s", unusable)
        for listener in self.web:
            listener.set_inheritable(True)
        descriptors = [listener.fileno() for listener in self.web]
        spec = gunicorn.process(
            self.settings,
            self._workspace,
            descriptors,
            paths,
            environ,
            self._host.log,
            behind_nginx=nginx.program(self.settings) is not None,
        )
        self.children.workers = self.children.start(spec.named(self._of), self._host.spawn_workers)


def heartbeats_of(settings: Settings) -> Heartbeats:
    """No worker yet; a hanging call is over its limit before its worker is replaced."""
    replaced_seconds = settings.wait_time_seconds + settings.script_timeout_seconds
    return Heartbeats(wanted=settings.gunicorn_workers, replaced_seconds=replaced_seconds)
