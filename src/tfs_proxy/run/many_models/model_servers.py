"""The model servers of many models: each has the models of all archives, which reloads add and remove."""

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from tfs_proxy.observe.process_usage import own_memory_of_tree
from tfs_proxy.run.host import sockets
from tfs_proxy.run.host.waiting import in_daemon_thread
from tfs_proxy.run.many_models.servable_polls import ServablePolls
from tfs_proxy.run.opening import ServeRequest, resources_on
from tfs_proxy.run.plan import files_of_model_servers, instances_on, model_server_process
from tfs_proxy.run.process import ChildProcess
from tfs_proxy.run.programs.model_server import model_config, open_to_the_outside
from tfs_proxy.run.readiness import Readiness
from tfs_proxy.run.run_loop import cancel
from tfs_proxy.run.stack_children import StackChildren
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import Instance, ServedModel
from tfs_proxy.values.errors import ModelLoadError, UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.values.layout import Workspace

METHOD: Final = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"
AWAY: Final = frozenset({"UNAVAILABLE", "CANCELLED"})
"""Status codes of a call whose model server is down."""

TOO_LATE: Final = "DEADLINE_EXCEEDED"


def reload(grpc_socket: Path, config: str, timeout_seconds: float) -> None:
    """Gives the model server ``config``, a ModelServerConfig as text; blocks until its models are loaded.

    Raises UpstreamUnavailable if the model server is down, UpstreamTimeout if it takes longer, and
    ModelLoadError with its own words if it refuses the config or a new model can't be loaded
    (docs/reference/tensorflow-serving.md).
    """
    # Neither is needed before the first model comes.
    import grpc
    from google.protobuf import text_format

    from tfs_proxy.wire.protos import POOL, ReloadConfigRequest

    request = ReloadConfigRequest()
    text_format.Parse(config, request.config, descriptor_pool=POOL)
    with grpc.insecure_channel(f"unix:{grpc_socket}") as channel:
        call = channel.unary_unary(METHOD)
        try:
            call(request.SerializeToString(), timeout=timeout_seconds)
        except grpc.RpcError as error:
            code, details = error.code().name, error.details() or ""
            if code == TOO_LATE:
                raise UpstreamTimeout(f"no reload within {timeout_seconds:g} s") from error
            if code in AWAY:
                raise UpstreamUnavailable(f"the model server went away: {details}") from error
            raise ModelLoadError(f"{code}: {details}") from error


class Reloads:
    """Runs ``reload``, never twice at a time."""

    def __init__(self, reload: Callable[[], Coroutine[None, None, None]]) -> None:
        self._reload = reload
        self._requested = 0
        self._begun_for = 0
        self._running: asyncio.Task[None] | None = None

    async def request(self) -> None:
        """Returns once a reload that began after this call has ended; raises what it raised.

        Cancelling the call stops no reload.
        """
        self._requested += 1
        wanted = self._requested
        while True:
            if self._running is None or self._running.done():
                self._begun_for = self._requested
                self._running = asyncio.create_task(self._reload())
            running, covers_this = self._running, self._begun_for >= wanted
            if covers_this:
                await asyncio.shield(running)
                return
            await asyncio.wait({running})


log = logging.getLogger(__name__)

DIED: Final = "the model server ended while it loaded this model"
ABANDONED_SECONDS: Final = 30.0
"""Limit of a reload, which others wait for, beyond `SAGEMAKER_TFS_WAIT_TIME_SECONDS`."""

PAUSE_SECONDS: Final = 0.05
GONE_SECONDS: Final = 5.0
"""After this, a model server that still has removed models is asked once more."""


class SharedModelServers:
    """Started once; stacks of models call `add` and `remove`, also concurrently.

    They start without a model, and get all of them by a reload after each restart: so one model that can't be
    loaded any more ends none. Models that were being loaded when one ended are not loaded again, since they
    may have ended it. ``have_had_models`` is true once a model was loaded; ``lost`` is called for each
    instance that ends.
    """

    def __init__(
        self,
        settings: Settings,
        workspace: Workspace,
        children: StackChildren,
        readiness: Readiness,
        lost: Callable[[int], None],
    ) -> None:
        self.instances: tuple[Instance, ...] = ()
        self.have_had_models = False
        self._lost = lost
        self._settings, self._workspace = settings, workspace
        self._children, self._readiness = children, readiness
        self._wanted: dict[str, ServedModel] = {}
        self._sent: set[str] = set()
        self._loading: dict[str, asyncio.Future[int | None]] = {}
        self._memory_of: dict[str, int] = {}
        self._polls = ServablePolls(readiness)
        self._reloads = Reloads(self._reload)
        self._restoring: set[asyncio.Task[None]] = set()
        self._held = ExitStack()
        self._ports: Sequence[tuple[int, int]] = ()
        self._begun, self._stopping = asyncio.Event(), asyncio.Event()

    def take_ports(self) -> None:
        """Reserves their ports: ``instances`` has them."""
        settings = self._settings
        ports = sockets.model_server_ports(settings.safe_port_range, settings.instance_count, self._held)
        self._ports = ports
        self.instances = instances_on(ports, self._workspace)
        self._polls.ask(self.instances)

    async def start(self, request: ServeRequest) -> None:
        """Starts them without a model; returns once they answer."""
        settings, workspace = self._settings, self._workspace
        host = await asyncio.to_thread(resources_on, self._ports, request, settings, settings.extra_args)
        for path, text in files_of_model_servers((), settings, workspace, host.monitoring).items():
            path.write_text(text)
        for instance in self.instances:
            spec = model_server_process(instance, settings, workspace, host, script=True, models=0)
            self._children.start_model_server(spec)
        open_ports = open_to_the_outside(host.model_server, self.instances, script=True)
        if open_ports:
            log.info("%s", open_ports)
        self._readiness.expect(self.instances, {})
        await self._polls.until_reached()
        self._begun.set()

    async def begun(self) -> None:
        """Returns once `start` has."""
        await self._begun.wait()

    async def watch(self) -> None:
        """Keeps the run's readiness up to date about them; never returns."""
        await self._polls.forever()

    async def add(self, models: Sequence[ServedModel]) -> None:
        """Returns once every model is available. Raises ModelLoadError with the model server's reason.

        A caller that is cancelled, or fails, must `remove` the models.
        """
        died: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        for model in models:
            self._wanted[model.name] = model
            self._loading[model.name] = died
        before_bytes, began = self._memory(), time.monotonic()
        loading = asyncio.ensure_future(self._load(models))
        try:
            either: set[asyncio.Future[Any]] = {loading, died}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if died.done():
                raise ModelLoadError(f"{DIED}.", ended_with=died.result())
            await loading
        finally:
            await cancel(loading)
            for model in models:
                self._loading.pop(model.name, None)
        self._note_memory(models, before_bytes)
        for model in models:
            self._polls.expect(model, time.monotonic() - began)

    def loaded(self) -> frozenset[int]:
        return self._polls.loaded()

    def memory_of(self, names: Iterable[str]) -> int:
        """Approximate memory that the loads of these models have added; concurrent loads share it."""
        return sum(self._memory_of.get(name, 0) for name in names)

    async def watch_models(self, models: Sequence[ServedModel]) -> None:
        """Runs while these models may be asked. Raises ModelLoadError if one failed after a restart."""
        await self._polls.until_failed([model.name for model in models])

    async def remove(self, models: Sequence[ServedModel]) -> None:
        """Returns once no model server has any of these models, or once all of them are about to end."""
        names = {model.name for model in models}
        self._polls.forget(names)
        for name in names:
            self._memory_of.pop(name, None)
            self._wanted.pop(name, None)
        if self._sent.isdisjoint(names):
            return
        removing = asyncio.ensure_future(self._remove(names))
        stopping = asyncio.ensure_future(self._stopping.wait())
        either: set[asyncio.Future[Any]] = {removing, stopping}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel(removing, stopping)

    def stop_waiting(self) -> None:
        """Ends all waiting for removed models, since the model servers are about to be stopped."""
        self._stopping.set()

    def close(self) -> None:
        self._held.close()

    async def _remove(self, names: Collection[str]) -> None:
        """Reloads until they are gone: a reload may be refused, or reach a server that is starting."""
        while True:
            with suppress(ModelLoadError, UpstreamUnavailable):  # the former of models that others add
                await self._reloads.request()
            with suppress(TimeoutError):
                async with asyncio.timeout(GONE_SECONDS):
                    await self._polls.until_gone(names)
                self._sent.difference_update(names)
                return

    def _note_memory(self, models: Sequence[ServedModel], before_bytes: int) -> None:
        """Notes what a load has added; the first one includes TensorFlow's own memory, others do not."""
        loads = len(self._loading) + len(models)
        grown_bytes = max(0, self._memory() - before_bytes) // loads if self.have_had_models else 0
        self.have_had_models = True
        for model in models:
            self._memory_of[model.name] = grown_bytes

    def _memory(self) -> int:
        pids = [server.pid for server in self._children.model_servers]
        return sum(own_memory_of_tree(pid) for pid in pids if pid)

    async def _load(self, models: Sequence[ServedModel]) -> None:
        refused: ModelLoadError | None = None
        try:
            await self._reloads.request()
        except ModelLoadError as error:  # it may be about models that others add
            refused = error
        except UpstreamUnavailable as error:
            log.debug("%s", error)  # it gets all models when it is up again
        await self._polls.until_available(models, refused)

    async def _reload(self) -> None:
        """Makes all model servers take the models that are wanted now.

        Raises ModelLoadError if one refuses, and UpstreamUnavailable if one is down.
        """
        models = tuple(self._wanted.values())
        self._sent.update(self._wanted)
        config = model_config(models, self._settings.version_labels)
        results = await asyncio.gather(
            *(self._reload_one(instance, config) for instance in self.instances), return_exceptions=True
        )
        failures = [failure for failure in results if failure is not None]
        # One that is down gets all models when it is up again: other errors matter more.
        for failure in sorted(failures, key=lambda error: isinstance(error, UpstreamUnavailable)):
            raise failure

    async def _reload_one(self, instance: Instance, config: str) -> None:
        """Reloads one; it is restarted if it takes longer than any load may."""
        socket = self._workspace.grpc_socket(instance.index)
        seconds = self._settings.wait_time_seconds + ABANDONED_SECONDS
        try:
            await in_daemon_thread(partial(reload, socket, config, seconds), "reload")
        except UpstreamTimeout:
            log.error("model server %d has been loading for %g s: starting it again", instance.index, seconds)  # noqa: TRY400
            self._children.model_servers[instance.index].signal_group(signal.SIGKILL)

    def note_death(self, ended: ChildProcess) -> None:
        """Drops the models that an ended one may have been loading; it needs all others again."""
        for name, died in self._loading.items():
            if name in self._sent:
                self._wanted.pop(name, None)
                if not died.done():
                    died.set_result(ended.exit_status)
        self._lost(self._children.model_servers.index(ended))
        restoring = asyncio.create_task(self._restore())
        self._restoring.add(restoring)
        restoring.add_done_callback(self._restoring.discard)

    async def _restore(self) -> None:
        """Gives all models to the one that has been restarted."""
        while not self._stopping.is_set():
            await self._polls.until_reached()
            try:
                await self._reloads.request()
            except UpstreamUnavailable:
                await asyncio.sleep(PAUSE_SECONDS)
            except ModelLoadError:
                return  # `watch_models` tells which model has failed
            else:
                return
