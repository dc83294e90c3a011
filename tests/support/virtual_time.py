"""An event loop whose clock jumps to the next timer: hours pass at once, in the same order each time."""

import asyncio
import functools
import inspect
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Outcome = TypeVar("Outcome")


class _JumpingSelector(selectors.SelectSelector):
    """Waits for nothing: the time that it should have waited has passed."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("everything waits, and nothing will ever happen")
        self.now += max(timeout, 0.0)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Its time begins at 0; nothing outside the process can wake it."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        self.complaints: list[str] = []
        self.set_exception_handler(lambda _, context: self.complaints.append(str(context)))

    def time(self) -> float:
        return self._jumping.now


def run_in_virtual_time(coroutine: Coroutine[Any, Any, Outcome]) -> Outcome:
    """What ``coroutine`` returns; fails if a task that nobody awaits fails, or if all wait for each other."""
    loop = VirtualTimeLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        outcome = runner.run(coroutine)
    assert loop.complaints == []
    return outcome


def played(run: Callable[..., None], *parts: Any, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make a test of a coroutine that ``run`` plays; its keyword-only parameters are pytest's."""

    def decorate(scene: Callable[..., Any]) -> Callable[..., None]:
        signature = inspect.signature(scene)
        given = [each for each in signature.parameters.values() if each.kind is each.KEYWORD_ONLY]

        @functools.wraps(scene)
        def play(**values: Any) -> None:
            run(functools.partial(scene, **values), *parts, **options)

        play.__signature__ = signature.replace(parameters=given)  # type: ignore[attr-defined]
        return play

    return decorate
