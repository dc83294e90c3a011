"""The one way in which tests wait for what another process or thread does."""

import time
from collections.abc import Callable
from typing import TypeVar

Outcome = TypeVar("Outcome")

PAUSE_SECONDS = 0.02


def wait_until(
    condition: Callable[[], Outcome],
    timeout: float,
    what: str,
    *,
    details: Callable[[], object] = str,
    pause: float = PAUSE_SECONDS,
) -> Outcome:
    """Wait until ``condition`` returns something true, and return that.

    ``what`` is a sentence that is true then; ``details`` says more if the time runs out, such as a log.
    """
    outcome = within(timeout, condition, pause=pause)
    assert outcome, f"still not true after {timeout:g} s: {what}\n{details()}"
    return outcome


def within(timeout: float, condition: Callable[[], Outcome], *, pause: float = PAUSE_SECONDS) -> Outcome:
    """What ``condition`` returns as soon as that is true, or at the end of the time."""
    deadline = time.monotonic() + timeout
    while not (outcome := condition()) and time.monotonic() < deadline:
        time.sleep(pause)
    return outcome
