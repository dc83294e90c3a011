"""The model servers of shared mode: each has the models of all archives, which come and go by its reload."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, Final

from tfs_proxy.deployment import Instance, ServedModel
from tfs_proxy.errors import ModelLoadError, UpstreamUnavailable
from tfs_proxy.layout import Workspace
from tfs_proxy.multimodel.shared.reload import reload
from tfs_proxy.multimodel.shared.reloads import Reloads
from tfs_proxy.multimodel.shared.servable_polls import ServablePolls
from tfs_proxy.observe.process_usage import own_memory_of_tree
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor.children import Children
from tfs_proxy.supervisor.host import sockets
from tfs_proxy.supervisor.host.daemon_thread import in_daemon_thread
from tfs_proxy.supervisor.opening import ServeRequest, resources_on
from tfs_proxy.supervisor.plan import instances_on, model_server_process, monitoring_files
from tfs_proxy.supervisor.process import ChildProcess
from tfs_proxy.supervisor.programs.model_server import model_config
from tfs_proxy.supervisor.readiness import Readiness

log = logging.getLogger(__name__)

DIED: Final = "the model server ended while it loaded this model"
LONGEST_RELOAD_SECONDS: Final = 24 * 3600.0
"""A load may take as long as it takes; `SAGEMAKER_TFS_WAIT_TIME_SECONDS` ends who waits for it."""


class SharedModelServers:
    """Started once; `add` and `remove` are called by the stacks of models, at the same time if need be.

    What they have is in a file that they read again whenever one is restarted, except for models that were
    being loaded when one ended: those may be what ended it. Set ``stopping`` before they are stopped: then
    nobody waits for them to let go of models.
    """

    def __init__(
        self, settings: Settings, workspace: Workspace, children: Children, readiness: Readiness
    ) -> None:
        self.instances: tuple[Instance, ...] = ()
        self._settings, self._workspace = settings, workspace
        self._children, self._readiness = children, readiness
        self._models: dict[str, ServedModel] = {}
        self._loading: dict[str, asyncio.Future[int | None]] = {}
        self._polls = ServablePolls(readiness)
        self._reloads = Reloads(self._reload)
        self._held = ExitStack()
        self._ports: Sequence[tuple[int, int]] = ()
        self._begun = asyncio.Event()
        self._memory_of: dict[str, int] = {}
        self.stopping = False
        children.model_server_died = self._forget_what_loads

    def take_ports(self) -> None:
        """Choose their ports, which they hold from now on: ``instances`` has them."""
        settings = self._settings
        ports = sockets.model_server_ports(settings.safe_port_range, settings.instance_count, self._held)
        self._ports = ports
        self.instances = self._polls.instances = instances_on(ports, self._workspace)

    async def start(self, request: ServeRequest) -> None:
        """Start them without a model; returns once they answer."""
        settings, workspace = self._settings, self._workspace
        host = await asyncio.to_thread(resources_on, self._ports, request, settings.extra_args)
        self._write_config()
        for path, text in monitoring_files(host.monitoring, workspace).items():
            path.write_text(text)
        self._children.model_servers = [
            self._children.start(model_server_process(instance, settings, workspace, host, script=True))
            for instance in self.instances
        ]
        self._readiness.expect(self.instances, {})
        await self._polls.until_reached()
        self._begun.set()

    async def begun(self) -> None:
        """Return once `start` has."""
        await self._begun.wait()

    async def watch(self) -> None:
        """Keep the readiness of the run up to date about them; never ends."""
        await self._polls.forever()

    async def add(self, models: Sequence[ServedModel]) -> None:
        """Return once every model is available; raises ModelLoadError with the model server's reason.

        Who is cancelled, or fails, has to `remove` the models.
        """
        died: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        for model in models:
            self._models[model.name] = model
            self._loading[model.name] = died
        before_bytes = self._memory()
        loading = asyncio.ensure_future(self._load(models))
        try:
            either: set[asyncio.Future[Any]] = {loading, died}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if died.done():
                raise ModelLoadError(f"{DIED}.", ended_with=died.result())
            await loading
        finally:
            loading.cancel()
            died.cancel()
            for model in models:
                self._loading.pop(model.name, None)
        grown_bytes = max(0, self._memory() - before_bytes) // (len(self._loading) + len(models))
        for model in models:
            self._memory_of[model.name] = grown_bytes
            self._polls.expect(model)

    def loaded(self) -> frozenset[int]:
        """The instances that have all their models now."""
        return self._polls.loaded()

    def memory_of(self, names: Iterable[str]) -> int:
        """About how much the loads of these models have added: of loads at a time each gets its share."""
        return sum(self._memory_of.get(name, 0) for name in names)

    async def watch_models(self, models: Sequence[ServedModel]) -> None:
        """Last as long as these models may be asked; raises ModelLoadError if one failed after a restart."""
        await self._polls.until_failed([model.name for model in models])

    async def remove(self, models: Sequence[ServedModel]) -> None:
        """Return once no model server has any of these models."""
        names = [model.name for model in models]
        self._polls.forget(names)
        for name in names:
            self._memory_of.pop(name, None)
        if self.stopping:
            return
        if not [self._models.pop(name) for name in names if name in self._models]:
            return
        with suppress(ModelLoadError):  # of models that others add
            await self._reloads.request()
        await self._polls.until_gone(names)

    def close(self) -> None:
        """Give their ports back; idempotent."""
        self._held.close()

    def _memory(self) -> int:
        # PERF: what is shared with others takes 7 ms to be counted, in which nothing else here goes on.
        pids = [server.pid for server in self._children.model_servers]
        return sum(own_memory_of_tree(pid) for pid in pids if pid)

    async def _load(self, models: Sequence[ServedModel]) -> None:
        refused: ModelLoadError | None = None
        try:
            await self._reloads.request()
        except ModelLoadError as error:  # it may be about models that others add
            refused = error
        await self._polls.until_available(models, refused)

    async def _reload(self) -> None:
        """Have all model servers take the models that there are now; raises ModelLoadError if one refuses."""
        config = self._write_config()
        results = await asyncio.gather(
            *(self._reload_one(instance, config) for instance in self.instances), return_exceptions=True
        )
        for failure in results:
            if isinstance(failure, UpstreamUnavailable):
                log.debug("%s", failure)  # it is started again with the same models
            elif failure is not None:
                raise failure

    async def _reload_one(self, instance: Instance, config: str) -> None:
        socket = self._workspace.grpc_socket(instance.index)
        await in_daemon_thread(partial(reload, socket, config, LONGEST_RELOAD_SECONDS), "reload")

    def _write_config(self) -> str:
        text = model_config(tuple(self._models.values()), self._settings.version_labels)
        new = self._workspace.model_config.with_suffix(".new")
        new.write_text(text)
        new.replace(self._workspace.model_config)
        return text

    def _forget_what_loads(self, ended: ChildProcess) -> None:
        """One has ended: before it starts again, what it was loading is taken from its models."""
        for name, died in self._loading.items():
            self._models.pop(name, None)
            if not died.done():
                died.set_result(ended.exit_status)
        self._write_config()
