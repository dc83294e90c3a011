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
from tfs_proxy.run.model_servers import ModelServers
from tfs_proxy.run.model_states import ENDED, ModelStates, ServableState, States
from tfs_proxy.run.opening import ServeRequest, resources_on
from tfs_proxy.run.plan import files_of_model_servers, instances_on, model_server_process
from tfs_proxy.run.process import ChildProcess
from tfs_proxy.run.programs.model_server import model_config, open_to_the_outside
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


class SharedServers(ModelServers):
    """Started once; stacks of models call `add`, `watch` and `leave`, also concurrently.

    They start without a model, and get all of them by a reload after each restart: so one model that can't be
    loaded any more ends none. Models that were being loaded when one ended are not loaded again, since they
    may have ended it. ``begun`` is set once `start` has returned, ``have_had_models`` once a model was
    loaded. Once they are ``stopping``, nobody waits for removed models.
    """

    def __init__(self, settings: Settings, workspace: Workspace) -> None:
        super().__init__(workspace, ModelStates(are_many=True, heard=self._hear))
        self.metrics_path: str | None = None
        self.have_had_models = False
        self.begun = asyncio.Event()
        self.stopping = asyncio.Event()
        self._settings = settings
        self._book: dict[str, SharedModel] = {}
        self._turn = asyncio.Lock()
        self._next_reload: asyncio.Task[None] | None = None
        self._restoring: set[asyncio.Task[None]] = set()
        self._ports: Sequence[tuple[int, int]] = ()

    def reserve_ports(self) -> None:
        """Reserves their ports: ``instances`` has them."""
        count = self._settings.instance_count
        allowed = self._settings.safe_port_range
        self._ports = sockets.model_server_ports(allowed, count, self.held)
        self.states.expect(instances_on(self._ports, self.workspace), {})

    async def start(self, request: ServeRequest, children: StackChildren) -> None:
        """Starts them without a model, as ``children``; returns once they answer."""
        settings = self._settings
        workspace = self.workspace
        host = await asyncio.to_thread(resources_on, self._ports, request, settings, settings.extra_args)
        for path, text in files_of_model_servers((), settings, workspace, host.monitoring).items():
            path.write_text(text)
        for instance in self.instances:
            spec = model_server_process(instance, settings, workspace, host, script=True, models=0)
            self.processes.append(children.start(spec))
        if open_ports := open_to_the_outside(host.model_server, self.instances, script=True):
            log.info("%s", open_ports)
        self.metrics_path = host.monitoring.path
        await self._until_reached()
        self.begun.set()

    def memory_of(self, models: Iterable[ServedModel]) -> int:
        """Approximate memory that the loads of these models have added; concurrent loads share it."""
        return sum(each.memory_bytes for each in self._entries(models))

    async def add(self, models: Sequence[ServedModel]) -> None:
        """Returns once every model is available. Raises ModelLoadError with the model server's reason.

        A caller that is cancelled, or fails, must `leave` with the models.
        """
        if not models:
            return
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
            await self.states.until(
                lambda: all(self._is_available(model, refused) for model in models),
                [model.name for model in models],
            )

        await while_watched(load(), self.watch(models))
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
            self.states.expect_more(each.model.name, each.model.versions, time.monotonic() - began)

    async def watch(self, models: Sequence[ServedModel]) -> None:
        """Runs while these models may be asked. Raises ModelLoadError if one failed after a restart."""
        lost = [each.lost for each in self._entries(models)] or [asyncio.Future[ModelLoadError]()]
        done, _ = await asyncio.wait(lost, return_when=asyncio.FIRST_COMPLETED)
        for reason in done:
            raise reason.result()

    async def leave(self, models: Iterable[ServedModel]) -> None:
        """Returns once no model server has any of these models, or once all of them are about to end."""
        leaving = self._entries(models)
        sent = [each.model.name for each in leaving if each.state is not SharedState.WANTED]
        for each in leaving:
            each.state = SharedState.LEAVING
            self.states.forget(each.model.name)
        if sent:
            await unless_set(self.stopping, self._until_gone(sent))
        for each in leaving:
            self.states.forget(each.model.name)  # again: its end was told of, too
            del self._book[each.model.name]

    def _entries(self, models: Iterable[ServedModel]) -> Sequence[SharedModel]:
        """Those of these models that were added: another archive may have had a model of the same name."""
        found = ((model, self._book.get(model.name)) for model in models)
        return [entry for model, entry in found if entry is not None and entry.model is model]

    def note_death(self, ended: ChildProcess) -> None:
        """Drops the models that an ended one may have been loading; it needs all others again."""
        super().note_death(ended)
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
                    await self.states.until(are_gone, names)
                    return

    def _memory(self) -> int:
        return sum(own_memory_of_tree(server.pid) for server in self.processes if server.pid)

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
                work = partial(reload, self.workspace.grpc_socket(index), config, seconds)
                await in_daemon_thread(work, "reload")
            except UpstreamTimeout:
                log.error("model server %d has been loading for %g s: starting it again", index, seconds)  # noqa: TRY400
                self.processes[index].signal_group(signal.SIGKILL)

        reloads = (reload_one(instance.index) for instance in self.instances)
        results = await asyncio.gather(*reloads, return_exceptions=True)
        failures = [failure for failure in results if failure is not None]
        # One that is down gets all models when it is up again: other errors matter more.
        for failure in sorted(failures, key=lambda error: isinstance(error, UpstreamUnavailable)):
            raise failure

    async def _until_reached(self) -> None:
        """Returns once every model server answers."""
        await self.states.until(lambda: not self.states.unreachable, ("",))

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
        return self.states.reported.get((instance.index, name))

    def _is_available(self, model: ServedModel, refused: ModelLoadError | None) -> bool:
        """True if every version is, everywhere. Raises ``refused`` if a model server does not know it."""
        told = [self._told(instance, model.name) for instance in self.instances]
        if refused is not None and {} in told:
            raise refused
        return all(
            (states or {}).get(version, ServableState()).available
            for states, version in product(told, model.versions)
        )
