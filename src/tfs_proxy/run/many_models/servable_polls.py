"""Asks the model servers of many models for the states of models: during a load, and from time to time."""

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from tfs_proxy.run.model_states import LOADING_PAUSE_SECONDS, MISSES, POLL_SECONDS
from tfs_proxy.run.readiness import ENDED, Readiness, ServableState, read_status
from tfs_proxy.values.deployment import Instance, ServedModel
from tfs_proxy.values.errors import ModelLoadError, UpstreamError
from tfs_proxy.wire.http_client import get_async

PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 0.25


class ServablePolls:
    """Tells ``readiness`` the states of the models that it expects.

    While nothing happens, one model is asked about a second, however many there are.
    """

    def __init__(self, readiness: Readiness) -> None:
        self._instances: tuple[Instance, ...] = ()
        self._readiness = readiness
        self._expected: dict[str, ServedModel] = {}
        self._failures: dict[str, asyncio.Future[str]] = {}
        self._misses: dict[int, int] = {}

    def ask(self, instances: tuple[Instance, ...]) -> None:
        """Asks these model servers from now on."""
        self._instances = instances

    def expect(self, model: ServedModel, load_seconds: float) -> None:
        """Expects this model, which took so long to load, to be available again after a restart."""
        self._expected[model.name] = model
        self._failures[model.name] = asyncio.get_running_loop().create_future()
        self._readiness.expect_more(self._instances, model.name, model.versions, load_seconds)

    def forget(self, names: Iterable[str]) -> None:
        """Expects these models no more."""
        for name in names:
            self._expected.pop(name, None)
            self._failures.pop(name, None)
            self._readiness.forget(name)

    def loaded(self) -> frozenset[int]:
        """The instances on which every expected model is available."""
        away = set(self._readiness.unreachable)
        if self._readiness.disturbed.is_set():  # else all of them are
            servables = self._readiness.servables.items()
            away |= {servable.instance for servable, state in servables if not state.available}
        return frozenset(each.index for each in self._instances) - away

    async def until_reached(self) -> None:
        """Returns once every model server answers."""
        while self._readiness.unreachable:
            await self._ask_all("")
            await asyncio.sleep(LOADING_PAUSE_SECONDS)

    async def until_available(self, models: Sequence[ServedModel], refused: ModelLoadError | None) -> None:
        """Returns once every version of these models is available. Raises ModelLoadError if one has failed.

        ``refused`` is the reason why a model server may not have them at all; it is raised if one does not.
        """
        for model in models:
            for instance in self._instances:
                await self._until_available(instance, model, refused)

    async def until_failed(self, names: Iterable[str]) -> None:
        """Runs until one of these models has failed for good. Raises ModelLoadError then."""
        failures = [self._failures[name] for name in names]
        await asyncio.wait(failures, return_when=asyncio.FIRST_COMPLETED)
        raise next(ModelLoadError(failure.result()) for failure in failures if failure.done())

    async def until_gone(self, names: Collection[str]) -> None:
        """Returns once all model servers say that they have no version of these models."""
        for name in names:
            for instance in self._instances:
                pause_seconds = LOADING_PAUSE_SECONDS
                while not _are_gone(await self._states(instance, name)):
                    pause_seconds = await _pause(pause_seconds)

    async def forever(self) -> None:
        """Notices a model server that does not answer; asks about all models once one has been restarted."""
        turn = 0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PAUSE_SECONDS):
                    await self._readiness.disturbed.wait()
            if self._readiness.disturbed.is_set():
                await self._until_settled()
                continue
            names = tuple(self._expected) or ("",)
            turn += 1
            await self._ask_all(names[turn % len(names)])

    async def _until_settled(self) -> None:
        while self._readiness.missing() is not None:
            missing = {
                servable.model for servable, state in self._readiness.servables.items() if not state.available
            }
            for name in sorted(missing) or ("",):
                await self._ask_all(name)
            await asyncio.sleep(LOADING_PAUSE_SECONDS)
        self._readiness.disturbed.clear()

    async def _ask_all(self, name: str) -> None:
        for instance in self._instances:
            states = await self._states(instance, name)
            if states is None:
                self._miss(instance)
                continue
            self._misses[instance.index] = 0
            self._readiness.note(instance.index, name, states)
            self._note_failure(name, states)

    def _note_failure(self, name: str, states: Mapping[int, ServableState]) -> None:
        failure = self._failures.get(name)
        reason = next(
            (reason for version, state in states.items() if (reason := _reason(name, version, state))), None
        )
        if failure is not None and not failure.done() and reason is not None:
            failure.set_result(reason)

    async def _until_available(
        self, instance: Instance, model: ServedModel, refused: ModelLoadError | None
    ) -> None:
        pause_seconds = LOADING_PAUSE_SECONDS
        while True:
            answer = await self._states(instance, model.name)
            if answer == {} and refused is not None:
                raise refused
            states = answer or {}
            for version in model.versions:
                reason = _reason(model.name, version, states.get(version, ServableState()))
                if reason is not None:
                    raise ModelLoadError(reason)
            if all(states.get(version, ServableState()).available for version in model.versions):
                return
            pause_seconds = await _pause(pause_seconds)

    async def _states(self, instance: Instance, name: str) -> Mapping[int, ServableState] | None:
        """The states of a model's versions; None if the model server does not answer."""
        path = f"/v1/models/{quote(name, safe='')}"
        try:
            reply = await get_async(instance.host, instance.rest_port, path, POLL_SECONDS)
            return {} if reply.status == HTTPStatus.NOT_FOUND or not name else read_status(reply.body)
        except (UpstreamError, ValueError):
            return None

    def _miss(self, instance: Instance) -> None:
        self._misses[instance.index] = self._misses.get(instance.index, 0) + 1
        if self._misses[instance.index] >= MISSES:
            self._readiness.unreachable.add(instance.index)


def _reason(name: str, version: int, state: ServableState) -> str | None:
    """The reason why a version will not become available; None if it may."""
    return f"model {name} version {version} can't be loaded: {state.error}." if state.failed else None


def _are_gone(states: Mapping[int, ServableState] | None) -> bool:
    """True if no version is left; a server that does not answer may have some."""
    return states is not None and all(state.state == ENDED for state in states.values())


async def _pause(seconds: float) -> float:
    """Sleeps; returns the next time to sleep."""
    await asyncio.sleep(seconds)
    return min(seconds * 1.5, LONGEST_PAUSE_SECONDS)
