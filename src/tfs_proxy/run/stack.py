"""One stack: the processes that serve one archive, in a folder of their own, behind a front.

It opens the archive, starts model servers and workers, waits until they are ready, and watches them.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from tfs_proxy.model.report.prepare import Prepared
from tfs_proxy.run.control_api import Answer, ControlApi
from tfs_proxy.run.host.sockets import Listener
from tfs_proxy.run.model_servers import ArchiveServers, ModelServers
from tfs_proxy.run.opening import ServeRequest, find_host_resources, open_archive, plan_processes
from tfs_proxy.run.plan import HostResources, ProcessPlan
from tfs_proxy.run.process import Spawn, Tick, spawn
from tfs_proxy.run.programs import gunicorn, packages
from tfs_proxy.run.run import RunHost
from tfs_proxy.run.stack_children import StackChildren
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import Deployment, ServedModel
from tfs_proxy.values.errors import StartTimeout
from tfs_proxy.values.layout import Workspace

log = logging.getLogger(__name__)

INSTALLING = "starting: installing packages"


class StackHost(Struct, frozen=True):
    """The surroundings of a stack."""

    run: RunHost
    """Parts that the run has once."""

    spawn_workers: Spawn = spawn
    """Function that starts gunicorn."""

    tick: Tick = lambda: None
    """Function that is called at each look at the processes."""


class Stack:
    """The model servers and workers of one archive, in the folder ``workspace``, and how ready they are.

    ``settings`` are those of the run until the archive is open, then sized for its models. ``name``, if there
    are many, is the model's, and the end of its processes' names; then ``common`` model servers have the
    models of all. ``prepared`` and ``deployment`` are what it serves, once that is known.
    """

    def __init__(
        self,
        settings: Settings,
        request: ServeRequest,
        workspace: Workspace,
        host: StackHost,
        name: str = "",
        common: ModelServers | None = None,
    ) -> None:
        self.settings = settings
        self.request = request
        self.workspace = workspace
        self.name = name
        self.packages: packages.Installed | None = None
        self.children = StackChildren(
            settings,
            common or ArchiveServers(workspace),
            workspace,
            host.run,
            common=common is not None,
            own_exit_status=request.flags is not None,
            tick=host.tick,
        )
        self.readiness = self.children.readiness
        self.prepared: Prepared | None = None
        self.planned: ProcessPlan | None = None
        self._host = host
        self._packages_before: packages.Installed | None = None
        self._control_api: ControlApi | None = None
        self._started_at = time.monotonic()
        self._installs = False
        self._workers_began = 0.0

    @property
    def deployment(self) -> Deployment | None:
        return None if self.planned is None else self.planned.deployment

    @property
    def servers(self) -> ModelServers:
        return self.children.servers

    @property
    def has_workers(self) -> bool:
        """True unless it is one of many without a script, which common workers serve."""
        return not self.name or (self.deployment is not None and self.deployment.script is not None)

    @property
    def models(self) -> Sequence[ServedModel]:
        """The models of its archive, once it is open."""
        return () if self.prepared is None else self.prepared.models

    @property
    def code_of_users(self) -> Path | None:
        """The folder of the code that users change; None if an archive brought it."""
        code = None if self.prepared is None else self.prepared.served.layout.code
        return None if code is None or code.is_relative_to(self.workspace.root) else code

    @property
    def folders(self) -> frozenset[Path]:
        """Folders of stacks that it uses: its own, and those with its model servers and packages."""
        workspaces = {self.workspace.root, self.servers.workspace.root}
        return frozenset(workspaces if self.packages is None else workspaces | {self.packages.folder.parent})

    async def open_archive(self, before: Prepared | None = None) -> Prepared:
        """Finds out what is served, and sizes for it; raises as `run.opening.open_archive` does."""
        self.readiness.steps.begin("starting: opening the model archive")
        prepared = await open_archive(self.request, self.settings, self.workspace, before)
        self.prepared = prepared
        self.settings = prepared.settings
        self.children.deaths.limits.models[self.name] = self.settings.machine.models_bytes
        model = self.settings.loaded_as or prepared.served.default_model
        self.readiness.heartbeats.set_wanted(self.settings.gunicorn_workers, model)
        return prepared

    async def adopt(self, prepared: Prepared, former: "Stack") -> bool:
        """Takes over packages of the ``former`` stack, and its model servers if these fit; True if so."""
        self._packages_before = former.packages
        fit = await former.servers.fit(prepared)
        if fit:
            self.children.adopt(former.children)
        return fit

    async def make_plan(self, prepared: Prepared) -> ProcessPlan:
        """Writes the configuration of the archive's processes; from here on they are expected."""
        front = self._host.run.front
        instances = self.servers.instances
        if instances and prepared.models:
            host = HostResources((), (), 0, self.request.environ, common=instances)
        else:
            host = await asyncio.to_thread(find_host_resources, self.request, prepared, self.servers.held)
        counts = not front.behind_nginx  # else nginx writes the lines of requests
        planned = plan_processes(prepared, self.workspace, host, front.port, counts_requests=counts)
        if not host.common:
            self.servers.expect(prepared, planned, host)
        self.planned = planned
        return planned

    async def open_control_api(self, of_run: Answer | None = None) -> None:
        """Opens a control API of its own for its workers; ``of_run`` answers what is about the run."""
        self._control_api = ControlApi(self, of_run=of_run)
        await self._control_api.open(self.workspace.control_socket)

    async def start_in_time(
        self, prepared: Prepared, planned: ProcessPlan, web: Sequence[Listener], *, every_worker: bool = False
    ) -> None:
        """Returns once everything that is ``planned`` is ready; workers accept on ``web``.

        Loads models, and installs and imports the script concurrently. Raises StopServing if it can't be,
        StartTimeout at a limit. One worker is enough, unless ``every_worker`` has to be.
        """

        async def become_ready() -> None:
            self.readiness.steps.begin(
                f"starting: loading the {'models' if planned.deployment.instances else 'script'}"
            )
            for spec in planned.model_servers:
                self.servers.processes.append(self.children.start(spec))
            try:
                async with asyncio.TaskGroup() as group:
                    if self.has_workers:
                        group.create_task(self._start_workers(prepared, web))
                    group.create_task(self._load_models())
            except ExceptionGroup as failures:
                raise failures.exceptions[0] from None
            if self.has_workers:
                self.readiness.steps.begin("starting: waiting for a worker")
                async with self._in_time(self._workers_began):
                    await self.readiness.heartbeats.until_alive(every_worker=every_worker)

        await self.children.watch_during(become_ready())

    @asynccontextmanager
    async def _in_time(self, since: float) -> AsyncIterator[None]:
        """Waits for models or the script. Raises StartTimeout if they take too long ``since`` that time."""
        # With flags, the model server follows its folders, which may still be filled: there is no limit.
        limit_seconds = self.settings.wait_time_seconds if self.request.flags is None else None
        left_seconds = None if limit_seconds is None else since + limit_seconds - time.monotonic()
        try:
            async with asyncio.timeout(left_seconds):
                yield
        except TimeoutError:
            lines = sorted(set(self.readiness.heartbeats.loading_lines()))
            place = f"; the script is at {' and at '.join(lines)}" if lines else ""
            raise StartTimeout(
                f"not ready within SAGEMAKER_TFS_WAIT_TIME_SECONDS={self.settings.wait_time_seconds:g}: "
                f"{self.readiness.missing() or self.readiness.steps.current}{place}."
            ) from None

    def begin_serving(self) -> None:
        self.readiness.begin_serving()
        if self.planned is not None:
            for spec in self.planned.model_servers:
                self.children.devices.log(spec.name, self.planned.gpus)
        if self._control_api is not None:
            self._control_api.release()

    async def watch_forever(self) -> None:
        """Watches processes and models. Raises StopServing as soon as a process gives up."""
        watching = self.servers.watch(self.models)
        await (self.children.watch_during(watching) if self.has_workers else watching)

    def close(self) -> None:
        """Closes its control API."""
        if self._control_api is not None:
            self._control_api.close()

    async def _load_models(self) -> None:
        async with self._in_time(time.monotonic()):
            await self.servers.add(self.models)
        if self._installs:
            self.readiness.steps.begin(INSTALLING)
        if self.planned is not None and self.planned.model_servers:
            log.info("all models are available after %.2f s", time.monotonic() - self._started_at)

    async def _start_workers(self, prepared: Prepared, web: Sequence[Listener]) -> None:
        environ = self.request.environ
        install = packages.plan_install(prepared.served.layout, self.workspace, prepared.settings, environ)
        if install is not None:
            self._installs = True  # and what takes longer, models or packages, is the step
            self.packages = await packages.provide(install, self._packages_before)
            self._installs = False
        paths = [install.site_packages] if install is not None else []
        unusable = packages.noexec_warning([*paths, prepared.served.layout.code])
        if unusable:
            log.warning("%s", unusable)
        for listener in web:
            listener.set_inheritable(True)
        self.workspace.metrics.mkdir(exist_ok=True)
        spec = gunicorn.gunicorn_process(
            self.settings,
            self.workspace,
            [listener.fileno() for listener in web],
            paths,
            environ,
            self._host.run.records.log,
            behind_nginx=self._host.run.front.behind_nginx,
        )
        self._workers_began = time.monotonic()
        replaced = () if self.packages is None else self.packages.replaced
        script = prepared.served.script
        self.children.start_workers(spec.named(self.name), self._host.spawn_workers, script, replaced)
