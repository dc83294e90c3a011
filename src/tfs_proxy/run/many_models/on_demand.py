"""``--multi-model FOLDER``: a model's first request loads it; it is unloaded when others need room."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tfs_proxy.run.host.waiting import in_daemon_thread
from tfs_proxy.run.many_models.admission import ModelUse
from tfs_proxy.run.many_models.archives import Listing, LocalArchives, ModelFolder
from tfs_proxy.run.many_models.models import ModelRegistry
from tfs_proxy.run.readiness import StackState
from tfs_proxy.values.errors import (
    AlreadyLoaded,
    BadInput,
    ModelNotReady,
    NameTaken,
    NotEnoughResources,
    TfsProxyError,
    UnknownModel,
)
from tfs_proxy.values.names import printable

log = logging.getLogger(__name__)

FAILURE_SECONDS: Final = 5.0

Load = Callable[[str, str], Awaitable[None]]
"""Function that loads a model from a client's path. Raises BadInput for one that may not be loaded."""


def load_below(folders: Sequence[str], registry: ModelRegistry, on_demand: "OnDemandModels | None") -> Load:
    """Make a function that loads what is below ``folders``, and else what ``on_demand`` does."""
    stores = [LocalArchives(Path(folder)) for folder in folders]

    async def load(name: str, url: str) -> None:
        if await in_daemon_thread(lambda: any(store.below(url) for store in stores), "path"):
            await registry.load(name, url)
        elif on_demand is not None:
            await on_demand.load(name, url)
        else:
            known = f"{' or '.join(folders)}: TFS_PROXY_MODEL_FOLDERS names more"
            raise BadInput(f"{printable(url)} can't be loaded: only what is below {known}")

    return load


class OnDemandModels:
    """The models of ``folder`` in ``registry``; ``uses`` has the times of their last requests."""

    def __init__(
        self, registry: ModelRegistry, folder: ModelFolder, uses: Callable[[], Iterable[ModelUse]]
    ) -> None:
        self._registry = registry
        self._folder = folder
        self._uses = uses
        self._loads: dict[str, asyncio.Task[None]] = {}
        self._looking: asyncio.Task[Listing] | None = None
        self._failures: dict[str, tuple[float, TfsProxyError]] = {}

    async def load(self, name: str, url: str) -> None:
        """Loads a model below the folder. Raises BadInput for others, and what the registry raises."""
        allowed = await in_daemon_thread(partial(self._folder.require_below, url), "path")
        await self._make_room_and_load(name, allowed)

    async def urls(self) -> Mapping[str, str]:
        """Addresses by name of all archives that exist now, loaded or not. Raises ArchiveError."""
        return self._folder.urls(await self._listing())

    async def ready(self, name: str, timeout_seconds: float) -> None:
        """Returns if the model serves; loads it first if need be. Raises as the registry does."""
        deadline = time.monotonic() + timeout_seconds
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._loaded(name)
        except TimeoutError:
            if not self._registry.has(name):
                raise ModelNotReady(f"model {name} is still loading") from None
        except NameTaken:
            raise
        except AlreadyLoaded:
            pass
        await self._registry.ready(name, max(deadline - time.monotonic(), 0.0))

    async def _loaded(self, name: str) -> None:
        """Waits for the load under way, or begins one; the caller may be cancelled."""
        if name not in self._loads:
            if self._registry.has(name):
                return
            # A failing load costs other models memory and time: not every request repeats it.
            until, error = self._failures.get(name, (0.0, None))
            if error is not None and time.monotonic() < until:
                raise error
            url = self._folder.url_of(name, await self._listing())
            if url is None:
                raise UnknownModel(f"model {name} is not loaded, and there is no archive of that name")

            async def load() -> None:
                try:
                    await self._make_room_and_load(name, url)
                except TfsProxyError as error:
                    if type(error) is AlreadyLoaded:
                        raise
                    now = time.monotonic()
                    self._failures = {known: kept for known, kept in self._failures.items() if now < kept[0]}
                    self._failures[name] = now + FAILURE_SECONDS, error
                    raise

            if name not in self._loads:
                task = self._loads[name] = asyncio.create_task(load())
                task.add_done_callback(lambda _: self._loads.pop(name, None))
        await asyncio.shield(self._loads[name])

    async def _listing(self) -> Listing:
        """The archives below the folder: one look at a time, shared by all who wait."""

        def forget(looked: asyncio.Task[Listing]) -> None:
            self._looking = None
            if not looked.cancelled():
                looked.exception()  # the caller may be gone

        if self._looking is None:
            self._looking = asyncio.create_task(in_daemon_thread(self._folder.listing, "listing"))
            self._looking.add_done_callback(forget)
        return await asyncio.shield(self._looking)

    def _candidates(self) -> list[ModelUse]:
        """Models that may be unloaded; those that have failed first."""
        failed = [model.name for model in self._registry.list() if model.state is StackState.FAILED]
        return [*(ModelUse(name, 0, used_at=0.0) for name in failed), *self._uses()]

    async def _make_room_and_load(self, name: str, url: str) -> None:
        """Loads a model; while resources are lacking, unloads others and tries again.

        There is at most one eviction if it is not known how many bytes are missing: the load itself has found
        out then, and it may be the model's own fault.
        """
        has_guessed = False
        while True:
            try:
                return await self._registry.load(name, url)
            except NotEnoughResources as error:
                leaving = least_recently_used(self._candidates(), error.missing_bytes)
                is_guess = not error.missing_bytes
                if not leaving or (is_guess and has_guessed):
                    raise
            has_guessed = has_guessed or is_guess
            for other in leaving:
                log.info("model %s: unloaded to make room for %s", other, name)
                with contextlib.suppress(TfsProxyError):
                    await self._registry.unload(other)


def least_recently_used(models: Iterable[ModelUse], missing_bytes: int) -> tuple[str, ...]:
    """Names of the models to unload, in order, to release ``missing_bytes``; at least one.

    With 0 bytes one place is wanted. Models in use stay. Nothing if all others together are not enough:
    then it helps nobody to unload them.
    """
    leaving: list[str] = []
    unused = (model for model in models if not model.in_use)
    for model in sorted(unused, key=lambda model: (model.used_at, model.name)):
        leaving.append(model.name)
        missing_bytes -= model.memory_bytes
        if missing_bytes <= 0:
            return tuple(leaving)
    return ()
