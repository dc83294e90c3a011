"""The model servers of many models: each has the models of all archives, which reloads add and remove."""

import asyncio
import logging
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

from tfs_proxy.observe.process_usage import own_memory_of_tree
from tfs_proxy.run.host import sockets
from tfs_proxy.run.host.waiting import in_daemon_thread, unless_set, while_watched
from tfs_proxy.run.model_states import ModelWatch, States
from tfs_proxy.run.opening import ServeRequest, resources_on
from tfs_proxy.run.plan import files_of_model_servers, instances_on, model_server_process
from tfs_proxy.run.process import ChildProcess, Deaths, Tick
from tfs_proxy.run.programs.model_server import model_config, open_to_the_outside
from tfs_proxy.run.readiness import ENDED, Readiness, ServableState
from tfs_proxy.run.stack_children import StackChildren
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import Instance, ServedModel
from tfs_proxy.values.errors import ModelLoadError, UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.values.layout import Workspace

log = logging.getLogger(__name__)

METHOD: Final = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"
DIED: Final = "the model server ended while it loaded this model"
ABANDONED_SECONDS: Final = 30.0
"""Limit of a reload, which others wait for, beyond `SAGEMAKER_TFS_WAIT_TIME_SECONDS`."""

AWAY_PAUSE_SECONDS: Final = 0.05
GONE_SECONDS: Final = 5.0
"""After this, a model server that still has removed models is asked once more."""


def reload(grpc_socket: Path, config: str, timeout_seconds: float) -> None:
    """Gives the model server ``config``, a ModelServerConfig as text; blocks until its models are loaded.

    Raises UpstreamUnavailable if it is down, UpstreamTimeout if it takes longer, and ModelLoadError with its
    own words if it refuses the config or can't load a new model (docs/reference/tensorflow-serving.md).
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
            code = error.code().name
            details = error.details() or ""
            if code == "DEADLINE_EXCEEDED":
                raise UpstreamTimeout(f"no reload within {timeout_seconds:g} s") from error
            if code in {"UNAVAILABLE", "CANCELLED"}:
                raise UpstreamUnavailable(f"the model server went away: {details}") from error
            raise ModelLoadError(f"{code}: {details}") from error


class SharedState(Enum):
    """States of a model in the book; reloads have all but those that leave."""

    WANTED = "the next reload will have it"
    LOADING = "a reload has had it: some model server may have it"
    LOADED = "each model server has it, and has to have it again after a restart"
    LEAVING = "the next reload will not have it"


class SharedModel:
    """A model in the book of the model servers; ``lost`` gets the reason why it can't go on."""

    def __init__(self, model: ServedModel) -> None:
        self.model = model
        self.state = SharedState.WANTED
        self.lost: asyncio.Future[ModelLoadError] = asyncio.get_running_loop().create_future()
        self.memory_bytes = 0

    def fail(self, reason: ModelLoadError) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)


class SharedServers:
    """Started once; stacks of models call `add`, `watch` and `leave`, also concurrently.

    They start without a model, and get all of them by a reload after each restart: so one model that can't be
    loaded any more ends none. Models that were being loaded when one ended are not loaded again, since they
    may have ended it. ``tick`` is called at each look at them. ``begun`` is set once `start` has returned,
    ``have_had_models`` once a model was loaded. Once they are ``stopping``, nobody waits for removed models.
    """

    def __init__(
        self,
        settings: Settings,
        workspace: Workspace,
        readiness: Readiness,
        deaths: Deaths,
        tick: Tick,
    ) -> None:
        self.children = StackChildren(readiness, workspace, deaths, tick=tick)
        self.children.servers.users.append(self._note_death)
        self.instances: tuple[Instance, ...] = ()
        self.metrics_path: str | None = None
        self.have_had_models = False
        self._workspace = workspace
        self._settings = settings
        self.readiness = readiness
        self._book: dict[str, SharedModel] = {}
        self._turn = asyncio.Lock()
        self._next_reload: asyncio.Task[None] | None = None
        self._watch = ModelWatch(readiness, in_turn=True, heard=self._hear)
        self._restoring: set[asyncio.Task[None]] = set()
        self._ports: Sequence[tuple[int, int]] = ()
        self.begun = asyncio.Event()
        self.stopping = asyncio.Event()

    def reserve_ports(self) -> None:
        """Reserves their ports: ``instances`` has them."""
        count = self._settings.instance_count
        allowed = self._settings.safe_port_range
        self._ports = sockets.model_server_ports(allowed, count, self.children.servers.held)
        self.instances = instances_on(self._ports, self._workspace)

    async def start(self, request: ServeRequest) -> None:
        """Starts them without a model; returns once they answer."""
        settings = self._settings
        workspace = self._workspace
        host = await asyncio.to_thread(resources_on, self._ports, request, settings, settings.extra_args)
        for path, text in files_of_model_servers((), settings, workspace, host.monitoring).items():
            path.write_text(text)
        for instance in self.instances:
            spec = model_server_process(instance, settings, workspace, host, script=True, models=0)
            self.children.servers.processes.append(self.children.start(spec))
        if open_ports := open_to_the_outside(host.model_server, self.instances, script=True):
            log.info("%s", open_ports)
        self.metrics_path = host.monitoring.path
        self._watch.expect(self.instances, {})
        await self._until_reached()
        self.begun.set()

    def loaded(self) -> frozenset[int]:
        """The instances on which every loaded model is available."""
        away = set(self.readiness.unreachable)
        if self.readiness.disturbed.is_set():  # else all of them are
            away |= {servable.instance for servable in self.readiness.lacking()}
        return frozenset(each.index for each in self.instances) - away

    def memory_of(self, names: Iterable[str]) -> int:
        """Approximate memory that the loads of these models have added; concurrent loads share it."""
        return sum(self._book[name].memory_bytes for name in names if name in self._book)

    async def add(self, models: Sequence[ServedModel]) -> None:
        """Returns once every model is available. Raises ModelLoadError with the model server's reason.

        A caller that is cancelled, or fails, must `leave` with the models.
        """
        names = [model.name for model in models]
        added = [SharedModel(model) for model in models]
        self._book.update((each.model.name, each) for each in added)
        before_bytes = self._memory()
        began = time.monotonic()

        async def load() -> None:
            refused: ModelLoadError | None = None
            try:
                await self._take_up()
            except ModelLoadError as error:  # it may be about models that others add
                refused = error
            except UpstreamUnavailable as error:
                log.debug("%s", error)  # it gets all models when it is up again
            await self._watch.until(
                lambda: all(self._is_available(model, refused) for model in models),
                names,
            )

        await while_watched(load(), self.watch(names))
        for each in added:
            if each.lost.done():  # at the last moment
                raise each.lost.result()
        # The first load adds TensorFlow's own memory, too, which is not this model's.
        grown_bytes = max(0, self._memory() - before_bytes) if self.have_had_models else 0
        is_loading = {SharedState.WANTED, SharedState.LOADING}
        loads = sum(each.state in is_loading for each in self._book.values())
        self.have_had_models = True
        for each in added:
            each.state = SharedState.LOADED
            each.memory_bytes = grown_bytes // loads
            name = each.model.name
            versions = each.model.versions
            self.readiness.expect_more(self.instances, name, versions, time.monotonic() - began)

    async def watch(self, names: Iterable[str]) -> None:
        """Runs while these models may be asked. Raises ModelLoadError if one failed after a restart."""
        lost = [self._book[name].lost for name in names]
        done, _ = await asyncio.wait(lost, return_when=asyncio.FIRST_COMPLETED)
        for reason in done:
            raise reason.result()

    async def leave(self, names: Iterable[str]) -> None:
        """Returns once no model server has any of these models, or once all of them are about to end."""
        names = [name for name in names if name in self._book]
        sent = [name for name in names if self._book[name].state is not SharedState.WANTED]
        for name in names:
            self._book[name].state = SharedState.LEAVING
            self.readiness.forget(name)
        if sent:
            await unless_set(self.stopping, self._until_gone(sent))
        for name in names:
            del self._book[name]

    def _note_death(self, ended: ChildProcess) -> None:
        """Drops the models that an ended one may have been loading; it needs all others again."""
        for each in self._book.values():
            if each.state is SharedState.LOADING:
                each.state = SharedState.LEAVING
                each.fail(ModelLoadError(f"{DIED}.", ended_with=ended.exit_status))

        async def restore() -> None:
            """Gives all models to the one that has been restarted."""
            while not self.stopping.is_set():
                await self._until_reached()
                try:
                    await self._take_up()
                except UpstreamUnavailable:
                    await asyncio.sleep(AWAY_PAUSE_SECONDS)
                except ModelLoadError:
                    return  # `watch` tells which model has failed
                else:
                    return

        restoring = asyncio.create_task(restore())
        self._restoring.add(restoring)
        restoring.add_done_callback(self._restoring.discard)

    async def _until_gone(self, names: Iterable[str]) -> None:
        """Reloads until they are gone: a reload may be refused, or reach a server that is starting."""

        def are_gone() -> bool:
            """True if no version is left; a server that has not answered may have some."""
            told = [self._told(instance, name) for instance, name in product(self.instances, names)]
            return all(
                states is not None and all(state.state == ENDED for state in states.values())
                for states in told
            )

        while True:
            with suppress(ModelLoadError, UpstreamUnavailable):  # the former of models that others add
                await self._take_up()
            with suppress(TimeoutError):
                async with asyncio.timeout(GONE_SECONDS):
                    await self._watch.until(are_gone, names)
                    return

    def _memory(self) -> int:
        return sum(own_memory_of_tree(server.pid) for server in self.children.servers.processes if server.pid)

    async def _take_up(self) -> None:
        """Returns once a reload that began after this call has ended, one for all who wait.

        Never two at a time. Raises as `_reload` does. Cancelling the call stops no reload.
        """

        async def take_turn() -> None:
            async with self._turn:
                self._next_reload = None
                await self._reload()

        if self._next_reload is None:
            self._next_reload = asyncio.create_task(take_turn())
        await asyncio.shield(self._next_reload)

    async def _reload(self) -> None:
        """Makes all model servers take the models that are wanted now.

        Raises ModelLoadError if one refuses, and UpstreamUnavailable if one is down.
        """
        wanted = [each for each in self._book.values() if each.state is not SharedState.LEAVING]
        for each in wanted:
            if each.state is SharedState.WANTED:
                each.state = SharedState.LOADING
        config = model_config(tuple(each.model for each in wanted), self._settings.version_labels)
        seconds = self._settings.wait_time_seconds + ABANDONED_SECONDS

        async def reload_one(index: int) -> None:
            """Reloads one; it is restarted if it takes longer than any load may."""
            try:
                work = partial(reload, self._workspace.grpc_socket(index), config, seconds)
                await in_daemon_thread(work, "reload")
            except UpstreamTimeout:
                log.error("model server %d has been loading for %g s: starting it again", index, seconds)  # noqa: TRY400
                self.children.servers.processes[index].signal_group(signal.SIGKILL)

        reloads = (reload_one(instance.index) for instance in self.instances)
        results = await asyncio.gather(*reloads, return_exceptions=True)
        failures = [failure for failure in results if failure is not None]
        # One that is down gets all models when it is up again: other errors matter more.
        for failure in sorted(failures, key=lambda error: isinstance(error, UpstreamUnavailable)):
            raise failure

    async def keep_watching(self) -> None:
        """Keeps the run's readiness up to date; never returns."""
        await self._watch.forever()

    async def _until_reached(self) -> None:
        """Returns once every model server answers."""
        await self._watch.until(lambda: not self.readiness.unreachable, ("",))

    def _hear(self, name: str, states: States) -> None:
        """Notes that a model has failed, if a model server says so."""
        shared = self._book.get(name)
        if shared is None:
            return
        for version in shared.model.versions:
            state = states.get(version, ServableState())
            if state.failed:
                shared.fail(ModelLoadError(f"model {name} version {version} can't be loaded: {state.error}."))

    def _told(self, instance: Instance, name: str) -> States | None:
        """The states of a model of which this instance has told last; None if it has not."""
        return self.readiness.reported.get((instance.index, name))

    def _is_available(self, model: ServedModel, refused: ModelLoadError | None) -> bool:
        """True if every version is, everywhere. Raises ``refused`` if a model server does not know it."""
        told = [self._told(instance, model.name) for instance in self.instances]
        if refused is not None and {} in told:
            raise refused
        return all(
            (states or {}).get(version, ServableState()).available
            for states, version in product(told, model.versions)
        )
