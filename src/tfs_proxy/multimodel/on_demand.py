"""``--multi-model FOLDER``: the first request for a model loads it, and it leaves when others need room."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from tfs_proxy.errors import AlreadyLoaded, NotEnoughResources, TfsProxyError, UnknownModel
from tfs_proxy.multimodel.capacity.eviction import ModelUse, idle, least_recently_used
from tfs_proxy.multimodel.folder import ModelFolder
from tfs_proxy.multimodel.registry import ModelRegistry

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
MOST_ROUNDS: Final = 100
"""How often models may be unloaded for one load before it is refused."""


class OnDemandModels:
    """The models of ``folder`` in ``registry``; ``uses`` says when each was last asked."""

    def __init__(
        self, registry: ModelRegistry, folder: ModelFolder, uses: Callable[[], Iterable[ModelUse]]
    ) -> None:
        self._registry = registry
        self._folder = folder
        self._uses = uses
        self._loads: dict[str, asyncio.Task[None]] = {}

    async def load(self, name: str, url: str) -> None:
        """Load what a client asks for if it is below the folder; raises BadInput, and what it does."""
        allowed = await asyncio.to_thread(self._folder.require_below, url)
        await self._make_room_and_load(name, allowed)

    async def ready(self, name: str, timeout_seconds: float) -> None:
        """Return if the model serves; one that is not loaded is loaded first. Raises as the registry does."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._loaded(name)
        except TimeoutError:
            pass  # the registry says what it is at
        except AlreadyLoaded:
            pass
        left_seconds = max(timeout_seconds - (time.monotonic() - began), 0.0)
        await self._registry.ready(name, left_seconds)

    async def unload_idle(self, idle_seconds: float) -> None:
        """Unload models that nobody has asked for so long, for ever; 0 means never."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for name in idle(self._uses(), time.monotonic(), idle_seconds):
                log.info("model %s: no request for %g s, it is unloaded", name, idle_seconds)
                await self._unload(name)

    async def _loaded(self, name: str) -> None:
        """Wait for the load that is under way, or begin one if there is none; the caller may leave."""
        if name not in self._loads:
            with contextlib.suppress(UnknownModel):
                self._registry.get(name)
                return
            url = await asyncio.to_thread(self._folder.url_of, name)
            if url is None:
                raise UnknownModel(f"model {name} is not loaded, and there is no archive of that name")
            if name not in self._loads:
                task = asyncio.create_task(self._make_room_and_load(name, url))
                self._loads[name] = task
                task.add_done_callback(lambda _: self._loads.pop(name, None))
        await asyncio.shield(self._loads[name])

    async def _make_room_and_load(self, name: str, url: str) -> None:
        for _ in range(MOST_ROUNDS):
            try:
                await self._registry.load(name, url)
            except NotEnoughResources as error:
                leaving = least_recently_used(self._uses(), error.missing_bytes)
                if not leaving:
                    raise
                for other in leaving:
                    log.info("model %s: unloaded to make room for %s", other, name)
                    await self._unload(other)
            else:
                return
        raise NotEnoughResources(f"model {name} can't be loaded: others take the room that is made for it")

    async def _unload(self, name: str) -> None:
        with contextlib.suppress(TfsProxyError):
            await self._registry.unload(name)
