"""Which loads one start of a stack is measured at: more connections until p99 or the rate says stop; pure."""

from collections.abc import Callable

from tfs_proxy.tuning.measured import LoadLevel

MOST_CONNECTIONS = 256
MIN_GAIN = 1.03
"""Twice the connections must raise the rate by this factor, or more of them only wait."""

MeasureLevel = Callable[[int], LoadLevel]
"""Measures one load of so many connections."""


def climb(measure: MeasureLevel, p99_ms: float, first: int) -> tuple[LoadLevel, ...]:
    """Measure powers of two, from ``first`` down until one holds the target, else up while the rate grows.

    A load whose requests fail ends the climb: a higher one would not be answered better.
    """
    level = measure(first)
    levels = [level]
    while not level.holds(p99_ms) and level.connections > 1:
        level = measure(level.connections // 2)
        levels.append(level)
    if len(levels) > 1 or not level.holds(p99_ms):
        return tuple(levels)
    grows = True
    while grows and level.connections < MOST_CONNECTIONS:
        below, level = level, measure(level.connections * 2)
        levels.append(level)
        grows = level.holds(p99_ms) and level.rate > MIN_GAIN * below.rate
    return tuple(levels)
