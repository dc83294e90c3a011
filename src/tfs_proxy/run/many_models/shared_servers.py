"""The model servers of many models: each has the models of all archives, which reloads add and remove."""

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

from tfs_proxy.observe.process_usage import own_memory_of_tree
from tfs_proxy.run.host import sockets
from tfs_proxy.run.host.waiting import cancel, in_daemon_thread, unless_set
from tfs_proxy.run.model_states import LOADING_PAUSE_SECONDS, ModelWatch, loading_pause
from tfs_proxy.run.opening import ServeRequest, resources_on
from tfs_proxy.run.plan import files_of_model_servers, instances_on, model_server_process
from tfs_proxy.run.process import ChildProcess, Deaths, Tick
from tfs_proxy.run.programs.model_server import model_config, open_to_the_outside
from tfs_proxy.run.readiness import ENDED, ExpectedVersion, Readiness, ServableState
from tfs_proxy.run.stack_children import StackChildren
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import Instance, ServedModel
from tfs_proxy.values.errors import ModelLoadError, UpstreamError, UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.values.layout import Workspace

log = logging.getLogger(__name__)

METHOD: Final = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"
DIED: Final = "the model server ended while it loaded this model"
ABANDONED_SECONDS: Final = 30.0
"""Limit of a reload, which others wait for, beyond `SAGEMAKER_TFS_WAIT_TIME_SECONDS`."""

PAUSE_SECONDS: Final = 1.0
AWAY_PAUSE_SECONDS: Final = 0.05
GONE_SECONDS: Final = 5.0
"""After this, a model server that still has removed models is asked once more."""

States = Mapping[int, ServableState]
"""A model server's states of a model, by version."""


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


class SharedModel:
    """A model in the book of the model servers.

    The next reload takes it if it ``is_wanted``; some model server may have it if it ``is_sent``; once it
    ``is_loaded``, each has to have it again after a restart. ``lost`` gets the reason why it can't go on.
    """

    def __init__(self, model: ServedModel) -> None:
        self.model = model
        self.is_wanted = True
        self.is_sent = False
        self.is_loaded = False
        self.lost: asyncio.Future[ModelLoadError] = asyncio.get_running_loop().create_future()
        self.memory_bytes = 0

    def fail(self, reason: ModelLoadError) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)


class SharedServers:
    """Started once; stacks of models call `add` and `remove`, also concurrently.

    They start without a model, and get all of them by a reload after each restart: so one model that can't be
    loaded any more ends none. Models that were being loaded when one ended are not loaded again, since they
    may have ended it. ``tick`` is called at each look at them. ``begun`` is set once `start` has returned,
    ``have_had_models`` once a model was loaded. Requests of stacks with their readiness in ``waiting`` wait
    for a server that has ended. Once they are ``stopping``, nobody waits for removed models.
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
        self.waiting: set[Readiness] = set()
        self.instances: tuple[Instance, ...] = ()
        self.metrics_path: str | None = None
        self.have_had_models = False
        self._workspace = workspace
        self._settings = settings
        self.readiness = readiness
        self._book: dict[str, SharedModel] = {}
        self._turn = asyncio.Lock()
        self._next_reload: asyncio.Task[None] | None = None
        self._polls = ModelWatch((), (), readiness)
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
        self._polls = ModelWatch(self.instances, (), self.readiness)

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
        self.readiness.expect(self.instances, {})
        await self._until_reached()
        self.begun.set()

    def loaded(self) -> frozenset[int]:
        """The instances on which every loaded model is available."""
        away = set(self.readiness.unreachable)
        if self.readiness.disturbed.is_set():  # else all of them are
            away |= {servable.instance for servable in self._away()}
        return frozenset(each.index for each in self.instances) - away

    def memory_of(self, names: Iterable[str]) -> int:
        """Approximate memory that the loads of these models have added; concurrent loads share it."""
        return sum(self._book[name].memory_bytes for name in names if name in self._book)

    async def add(self, models: Sequence[ServedModel]) -> None:
        """Returns once every model is available. Raises ModelLoadError with the model server's reason.

        A caller that is cancelled, or fails, must `remove` the models.
        """
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
            for model in models:
                await self._until(model.name, partial(_is_available, model, refused))

        loading = asyncio.ensure_future(load())
        try:
            either: set[asyncio.Future[Any]] = {loading, *(each.lost for each in added)}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            _raise_if_lost(added)
            await loading
        finally:
            await cancel(loading)
        # The first load adds TensorFlow's own memory, too, which is not this model's.
        grown_bytes = max(0, self._memory() - before_bytes) if self.have_had_models else 0
        loads = sum(each.is_wanted and not each.is_loaded for each in self._book.values())
        self.have_had_models = True
        for each in added:
            each.is_loaded = True
            each.memory_bytes = grown_bytes // loads
            name = each.model.name
            versions = each.model.versions
            self.readiness.expect_more(self.instances, name, versions, time.monotonic() - began)

    async def watch_models(self, models: Sequence[ServedModel]) -> None:
        """Runs while these models may be asked. Raises ModelLoadError if one failed after a restart."""
        added = [self._book[model.name] for model in models]
        await asyncio.wait([each.lost for each in added], return_when=asyncio.FIRST_COMPLETED)
        _raise_if_lost(added)

    async def remove(self, models: Sequence[ServedModel]) -> None:
        """Returns once no model server has any of these models, or once all of them are about to end."""
        names = [model.name for model in models if model.name in self._book]
        for name in names:
            self._book[name].is_wanted = False
            self.readiness.forget(name)
        if any(self._book[name].is_sent for name in names):
            await unless_set(self.stopping, self._until_gone(names))
        for name in names:
            del self._book[name]

    def _note_death(self, ended: ChildProcess) -> None:
        """Drops the models that an ended one may have been loading; it needs all others again."""
        for each in self._book.values():
            if each.is_sent and not each.is_loaded:
                each.is_wanted = False
                each.fail(ModelLoadError(f"{DIED}.", ended_with=ended.exit_status))
        for readiness in self.waiting:
            readiness.lose(self.children.servers.processes.index(ended))

        async def restore() -> None:
            """Gives all models to the one that has been restarted."""
            while not self.stopping.is_set():
                await self._until_reached()
                try:
                    await self._take_up()
                except UpstreamUnavailable:
                    await asyncio.sleep(AWAY_PAUSE_SECONDS)
                except ModelLoadError:
                    return  # `watch_models` tells which model has failed
                else:
                    return

        restoring = asyncio.create_task(restore())
        self._restoring.add(restoring)
        restoring.add_done_callback(self._restoring.discard)

    async def _until_gone(self, names: Iterable[str]) -> None:
        """Reloads until they are gone: a reload may be refused, or reach a server that is starting."""

        def is_gone(states: States | None) -> bool:
            """True if no version is left; a server that does not answer may have some."""
            return states is not None and all(state.state == ENDED for state in states.values())

        has_some = True
        while has_some:
            with suppress(ModelLoadError, UpstreamUnavailable):  # the former of models that others add
                await self._take_up()
            with suppress(TimeoutError):
                async with asyncio.timeout(GONE_SECONDS):
                    for name in names:
                        await self._until(name, is_gone)
                    has_some = False

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
        wanted = [each for each in self._book.values() if each.is_wanted]
        for each in wanted:
            each.is_sent = True
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

    async def watch(self) -> None:
        """Keeps the run's readiness up to date; never returns.

        While nothing happens, one model is asked about a second, however many there are; once a model server
        has been restarted, all of them.
        """
        readiness = self.readiness
        turn = 0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(PAUSE_SECONDS):
                    await readiness.disturbed.wait()
            if not readiness.disturbed.is_set():
                names = [name for name, each in self._book.items() if each.is_loaded]
                turn += 1
                await self._ask_all(names[turn % len(names) :][:1] if names else ())
                continue
            while readiness.missing() is not None:
                await self._ask_all({servable.model for servable in self._away()})
                await asyncio.sleep(LOADING_PAUSE_SECONDS)
            readiness.disturbed.clear()

    def _away(self) -> list[ExpectedVersion]:
        """Versions that were loaded and are not available now."""
        return [servable for servable, state in self.readiness.servables.items() if not state.available]

    async def _until_reached(self) -> None:
        """Returns once every model server answers."""
        while self.readiness.unreachable:
            await self._polls.refresh()
            await asyncio.sleep(LOADING_PAUSE_SECONDS)

    async def _ask_all(self, names: Collection[str]) -> None:
        """Notes what each says of these models; without any, only that it answers."""
        await self._polls.refresh(names)
        for instance, name in product(self.instances, names):
            failed = _failure(name, self.readiness.reported.get((instance.index, name), {}))
            if failed is not None and name in self._book:
                self._book[name].fail(failed)

    async def _until(self, name: str, holds: Callable[[States | None], bool]) -> None:
        """Asks each about a model until that holds of its states, or of None if it does not answer."""
        for instance in self.instances:
            began = time.monotonic()
            while True:
                states: States | None = None
                with suppress(UpstreamError, ValueError):
                    states = await self._polls.states(instance, name)
                if holds(states):
                    break
                await asyncio.sleep(loading_pause(time.monotonic() - began))


def _raise_if_lost(models: Collection[SharedModel]) -> None:
    for each in models:
        if each.lost.done():
            raise each.lost.result()


def _failure(name: str, states: States) -> ModelLoadError | None:
    """The reason why a version of the model will not become available; None if all may."""
    for version, state in states.items():
        if state.failed:
            return ModelLoadError(f"model {name} version {version} can't be loaded: {state.error}.")
    return None


def _is_available(model: ServedModel, refused: ModelLoadError | None, states: States | None) -> bool:
    """True if every version is. Raises ModelLoadError if one has failed, ``refused`` if there is none."""
    if states == {} and refused is not None:
        raise refused
    of_model = {version: (states or {}).get(version, ServableState()) for version in model.versions}
    if (failed := _failure(model.name, of_model)) is not None:
        raise failed
    return all(state.available for state in of_model.values())
