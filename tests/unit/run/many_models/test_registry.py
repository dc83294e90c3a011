"""The registry's states, one behaviour at a time, with stacks that are played and a clock that jumps."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from support.fake_stacks import DIED, Fleet, Part, admit_all
from support.virtual_time import run_in_virtual_time
from tfs_proxy.run.many_models.models import ModelRegistry
from tfs_proxy.run.process import Backoff
from tfs_proxy.run.readiness import StackState
from tfs_proxy.values.errors import ModelNotReady

URL = "/models/a"
Play = Callable[[ModelRegistry, Fleet], Coroutine[Any, Any, None]]


def run(play: Play, *parts: Part) -> None:
    """Play with a registry whose stacks have these parts, in order; later ones have the last."""
    remaining = list(parts)

    async def scene() -> None:
        fleet = Fleet(lambda _name, _url: remaining.pop(0) if len(remaining) > 1 else remaining[0])
        registry = ModelRegistry(fleet.launch, None, admit_all)
        await play(registry, fleet)
        await registry.close()
        assert (fleet.live(), fleet.faults) == ([], [])

    run_in_virtual_time(scene())


def listed(registry: ModelRegistry) -> list[tuple[str, str, StackState, str]]:
    return [(model.name, model.url, model.state, model.reason) for model in registry.list()]


def test_a_model_that_dies_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    """After pauses that grow, until it was healthy for long; meanwhile it is listed with what it died of, and its requests are told so."""
    deaths = [Part(start_seconds=0, lives_seconds=0)] * 3
    failures = [Part(start_seconds=0, start_error=MemoryError())] * 5

    async def play(registry: ModelRegistry, fleet: Fleet) -> None:
        await registry.load("a", URL)
        await asyncio.sleep(0.1)
        assert listed(registry) == [("a", URL, StackState.FAILED, DIED)]
        with pytest.raises(
            ModelNotReady, match="model a has failed and is being started again: the model se"
        ):
            await registry.ready("a", 60)
        await asyncio.sleep(60)
        assert listed(registry) == [("a", URL, StackState.FAILED, "MemoryError")]
        await asyncio.sleep(200)
        assert listed(registry) == [("a", URL, StackState.READY, "")]
        assert registry.counts.restarts == {"a": 8}
        await asyncio.sleep(Backoff().healthy_seconds)
        fleet.kill("a")
        await asyncio.sleep(0.1)

    run(play, *deaths, *failures, Part())
    pauses = [text.split(" again in ")[1] for text in caplog.messages if " again in " in text]
    assert pauses == ["0.5 s", "1.0 s", "2.0 s", "4.0 s", "8.0 s", "16.0 s", "30.0 s", "30.0 s", "0.5 s"]
    assert f"model a has failed: {DIED[:-1]}; starting it again in 0.5 s" in caplog.text
