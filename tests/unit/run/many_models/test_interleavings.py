"""Random interleavings of calls, failures and deaths: whatever comes together, the registry stays true.

``INTERLEAVINGS`` says how many; ``make prove-interleavings`` runs many more than the fast tests do.
"""

import asyncio
import os
from collections.abc import Awaitable
from dataclasses import dataclass
from random import Random

import pytest

from support.fake_stacks import FakeStack, Fleet, Part
from support.virtual_time import run_in_virtual_time
from tfs_proxy.run.many_models.models import ModelRegistry
from tfs_proxy.run.readiness import StackState
from tfs_proxy.values.errors import (
    AlreadyLoaded,
    ArchiveError,
    Draining,
    LoadFailed,
    ModelNotReady,
    NotEnoughResources,
    StartTimeout,
    UnknownModel,
)

INTERLEAVINGS = int(os.environ.get("INTERLEAVINGS", "200"))
BATCHES = 20
OCCUPIED = {StackState.STARTING, StackState.READY, StackState.FAILED}
LONG_SECONDS = 10_000.0
"""Longer than any model of these fails, pauses between its starts included."""

LOAD_ERRORS = (ArchiveError, StartTimeout, NotEnoughResources, LoadFailed)
Outcomes = tuple[type[BaseException], ...]


@dataclass
class Scene:
    """One interleaving: everything in it comes from ``chance``."""

    chance: Random
    names: tuple[str, ...]
    limit: int | None

    def __post_init__(self) -> None:
        self.troubles_left = 6
        self.fleet = Fleet(lambda _name, _url: self.part())
        self.registry = ModelRegistry(self.fleet.launch, self.limit, self.admit)
        self.loads = 0

    async def admit(self, _name: str, _url: str) -> None:
        if self.trouble(0.05):
            raise NotEnoughResources("no memory is left")

    def trouble(self, probability: float) -> bool:
        goes_wrong = self.troubles_left > 0 and self.chance.random() < probability
        self.troubles_left -= goes_wrong
        return goes_wrong

    def seconds(self) -> float:
        """Few values, so that much happens at the same moment."""
        return self.chance.choice((0.0, 0.0, 0.5, 1.0, 2.0, 3.0))

    def part(self) -> Part:
        errors = (
            ArchiveError("broken"),
            StartTimeout("late"),
            MemoryError(),
            OSError(5, "?"),
            KeyError("a bug"),
        )
        return Part(
            start_seconds=self.seconds(),
            start_error=self.chance.choice(errors) if self.trouble(0.3) else None,
            cancel_seconds=self.seconds(),
            lives_seconds=self.seconds() if self.trouble(0.2) else None,
            stop_seconds=self.seconds(),
            stop_error=OSError("busy") if self.trouble(0.05) else None,
        )

    def state(self, name: str) -> StackState | None:
        return {model.name: model.state for model in self.registry.all()}.get(name)

    async def act(self) -> None:
        await asyncio.sleep(self.seconds() * self.chance.randint(0, 3))
        for _ in range(self.chance.randint(0, 3)):
            await asyncio.sleep(0)
        name = self.chance.choice(self.names)
        acts = (self.load, self.load, self.load, self.unload, self.unload, self.ready, self.hang_up, self.die)
        await self.chance.choice(acts)(name)

    async def load(self, name: str) -> None:
        state, began = self.state(name), asyncio.get_running_loop().time()
        self.loads += 1
        error = await failure(
            self.registry.load(name, f"/models/{name}/{self.loads}"),
            (AlreadyLoaded, ModelNotReady, *LOAD_ERRORS),
        )
        assert isinstance(error, AlreadyLoaded) == (state in OCCUPIED)
        if isinstance(error, AlreadyLoaded):
            assert asyncio.get_running_loop().time() == began

    async def unload(self, name: str) -> None:
        known, before = self.state(name) is not None, self.stacks_of(name)
        error = await failure(self.registry.unload(name), (UnknownModel,))
        assert (error is None) == known
        assert not any(stack.is_live for stack in before)

    async def ready(self, name: str) -> None:
        state, began, limit_seconds = self.state(name), asyncio.get_running_loop().time(), self.seconds()
        error = await failure(
            self.registry.ready(name, limit_seconds), (UnknownModel, ModelNotReady, *LOAD_ERRORS)
        )
        assert isinstance(error, UnknownModel) == (state is None)
        assert asyncio.get_running_loop().time() <= began + limit_seconds
        if error is None:
            assert self.state(name) is StackState.READY
            assert any(stack.is_live for stack in self.stacks_of(name))

    async def hang_up(self, name: str) -> None:
        """A client that does not wait for its answer: what it has begun goes on."""
        call = asyncio.ensure_future(self.chance.choice((self.load, self.unload, self.ready))(name))
        await asyncio.sleep(self.seconds())
        call.cancel()
        await asyncio.wait({call})
        if not call.cancelled():
            call.result()

    async def die(self, name: str) -> None:
        self.fleet.kill(name)

    def stacks_of(self, name: str) -> list[FakeStack]:
        return [stack for stack in self.fleet.stacks if stack.name == name]


async def failure(call: Awaitable[None], expected: Outcomes) -> BaseException | None:
    try:
        await call
    except expected as error:
        return error
    return None


async def play(scene: Scene) -> None:
    """All clients at once; then nothing for long; then the end of the run."""
    await asyncio.gather(*(scene.act() for _ in range(scene.chance.randint(2, 14))))
    await asyncio.sleep(LONG_SECONDS)
    listed = scene.registry.list()
    assert {model.name: model.url for model in listed} == scene.fleet.ready()
    assert len(scene.fleet.live()) == len(listed)
    assert scene.registry.all() == listed
    if scene.limit is not None:
        assert scene.fleet.most_names <= scene.limit
    await end(scene)
    assert scene.fleet.faults == []


async def end(scene: Scene) -> None:
    """More calls, and the drain in the midst of them."""
    listed = scene.registry.list()
    late = [asyncio.ensure_future(scene.registry.load(f"late{number}", "/late")) for number in range(2)]
    await asyncio.sleep(scene.seconds())
    await asyncio.gather(scene.registry.close(), scene.registry.close())
    for error in await asyncio.gather(*late, return_exceptions=True):
        assert error is None or isinstance(error, (Draining, *LOAD_ERRORS))
    for call in (
        scene.registry.load("a", "/a"),
        scene.registry.unload("a"),
        *(scene.registry.ready(model.name, 1.0) for model in listed),
    ):
        with pytest.raises(Draining):
            await call
    assert scene.registry.all() == ()
    assert all(stack.stopped for stack in scene.fleet.stacks if stack.started)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_calls_failures_and_deaths_in_any_order(batch: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")
    for seed in range(batch, INTERLEAVINGS, BATCHES):
        chance = Random(seed)
        names = tuple("abc"[: chance.randint(1, 3)])

        async def scene_of_its_own(chance: Random = chance, names: tuple[str, ...] = names) -> None:
            await play(Scene(chance, names, chance.choice((None, None, 1, 2))))

        try:
            run_in_virtual_time(scene_of_its_own())
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
