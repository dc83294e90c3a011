"""The registry's states, one behaviour at a time, with stacks that are played and a clock that jumps."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from support.fake_stacks import DIED, Fleet, Part
from support.virtual_time import played, run_in_virtual_time
from tfs_proxy.run.many_models.model import (
    HEALTHY_SECONDS,
)
from tfs_proxy.run.many_models.models import ModelRegistry
from tfs_proxy.run.readiness import StackState
from tfs_proxy.values.errors import (
    ArchiveError,
    LoadFailed,
    ModelNotReady,
    NotEnoughResources,
    StartTimeout,
    TfsProxyError,
)

URL = "/models/a"
Play = Callable[[ModelRegistry, Fleet], Coroutine[Any, Any, None]]


def run(play: Play, *parts: Part, limit: int | None = None, shortage: str = "") -> None:
    """Play with a registry whose stacks have these parts, in order; later ones have the last."""
    remaining = list(parts or (Part(),))

    async def admit(_name: str, _url: str) -> None:
        if shortage:
            raise NotEnoughResources(shortage)

    async def scene() -> None:
        fleet = Fleet(lambda _name, _url: remaining.pop(0) if len(remaining) > 1 else remaining[0])
        registry = ModelRegistry(fleet.launch, limit, admit)
        await play(registry, fleet)
        await registry.close()
        assert (fleet.live(), fleet.faults) == ([], [])

    run_in_virtual_time(scene())


def now() -> float:
    return asyncio.get_running_loop().time()


def listed(registry: ModelRegistry) -> list[tuple[str, str, StackState, str]]:
    return [(model.name, model.url, model.state, model.reason) for model in registry.list()]


async def begun(call: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
    """A call that goes on beside the test, for a moment already."""
    task = asyncio.ensure_future(call)
    await asyncio.sleep(0.1)
    return task


@pytest.mark.parametrize(
    ("error", "expected", "outcome"),
    [
        (ArchiveError("not a gzip file"), ArchiveError, "not_servable"),
        (StartTimeout("not ready within 60 s"), StartTimeout, "not_ready"),
        (MemoryError(), NotEnoughResources, "no_resources"),
        (PermissionError(13, "Permission denied"), LoadFailed, "failed"),
        (KeyError("a bug"), LoadFailed, "failed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_load_that_fails_says_why_and_leaves_nothing(
    error: Exception, expected: type[TfsProxyError], outcome: str
) -> None:
    """All is gone when the client hears of it, and the same name can be loaded again."""

    async def play(registry: ModelRegistry, fleet: Fleet) -> None:
        with pytest.raises(expected):
            await registry.load("a", URL)
        assert (now(), fleet.live(), registry.all()) == (3, [], ())
        assert registry.counts.outcomes == {outcome: 1}
        await registry.load("a", URL)

    run(play, Part(start_seconds=1, start_error=error, stop_seconds=2), Part())


def test_a_load_that_does_not_fit_is_refused_before_anything_starts() -> None:
    async def too_large(registry: ModelRegistry, fleet: Fleet) -> None:
        with pytest.raises(NotEnoughResources, match="80 MB are missing"):
            await registry.load("a", URL)
        assert fleet.stacks == []
        assert registry.all() == ()

    async def too_many(registry: ModelRegistry, fleet: Fleet) -> None:
        await asyncio.gather(registry.load("a", URL), registry.load("b", URL))
        with pytest.raises(
            NotEnoughResources, match="there are 2 models, as many as TFS_PROXY_MAX_LOADED_MODELS=2"
        ):
            await registry.load("c", URL)
        unload = await begun(registry.unload("a"))
        with pytest.raises(NotEnoughResources):
            await registry.load("c", URL)
        await unload
        await registry.load("c", URL)
        assert fleet.most_names == 2

    run(too_large, shortage="80 MB are missing")
    run(too_many, Part(stop_seconds=2), limit=2)


@played(run, Part())
async def test_a_model_that_dies_is_started_again(
    registry: ModelRegistry, fleet: Fleet, *, caplog: pytest.LogCaptureFixture
) -> None:
    await registry.load("a", URL)
    await asyncio.sleep(HEALTHY_SECONDS)
    fleet.kill("a")
    await asyncio.sleep(0.1)
    assert listed(registry) == [("a", URL, StackState.FAILED, DIED)]
    with pytest.raises(ModelNotReady, match="model a has failed and is being started again: the model se"):
        await registry.ready("a", 60)
    assert f"model a has failed: {DIED[:-1]}; starting it again in 0.5 s" in caplog.text
    await asyncio.sleep(5)
    assert listed(registry) == [("a", URL, StackState.READY, "")]
    assert registry.counts.restarts == {"a": 1}


def test_pauses_between_restarts_grow(caplog: pytest.LogCaptureFixture) -> None:
    deaths = [Part(start_seconds=0, lives_seconds=0)] * 3
    failures = [Part(start_seconds=0, start_error=MemoryError())] * 5

    async def play(registry: ModelRegistry, fleet: Fleet) -> None:
        await registry.load("a", URL)
        await asyncio.sleep(60)
        assert listed(registry) == [("a", URL, StackState.FAILED, "MemoryError")]
        await asyncio.sleep(200)
        assert registry.get("a").state is StackState.READY
        assert registry.counts.restarts == {"a": 8}

    run(play, *deaths, *failures, Part())
    pauses = [text.split(" again in ")[1] for text in caplog.messages if " again in " in text]
    assert pauses == ["0.5 s", "1.0 s", "2.0 s", "4.0 s", "8.0 s", "16.0 s", "30.0 s", "30.0 s"]


def test_a_stop_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The model is gone all the same, and its name free."""

    async def play(registry: ModelRegistry, fleet: Fleet) -> None:
        await registry.load("a", URL)
        await registry.unload("a")
        await registry.load("a", URL)

    run(play, Part(stop_error=OSError(16, "busy")), Part())
    assert "model a: its processes may not have stopped" in caplog.text


@played(run, Part(start_seconds=10))
async def test_loads_are_counted(registry: ModelRegistry, fleet: Fleet) -> None:
    await registry.load("a", URL)
    await registry.load("b", URL)
    assert registry.counts.outcomes == {"loaded": 2}
    assert registry.counts.seconds == 20
