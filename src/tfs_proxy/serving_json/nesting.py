"""Lists in lists, as JSON has tensors: flattened, with their shape."""

from collections.abc import Sequence
from enum import Enum
from itertools import chain
from typing import Any

from tfs_proxy.wire.dtypes import MAX_DIMENSIONS


class Irregularity(Enum):
    """Why lists in lists are not a tensor."""

    MIXED = "lists and plain values side by side"
    RAGGED = "lists of different lengths side by side"
    DEEP = "more levels than an array has dimensions"


class Irregular(ValueError):
    """Lists that are not a tensor; ``elements`` are all of the level at which that shows, in order."""

    def __init__(self, reason: Irregularity, elements: Sequence[Any]) -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.elements = elements


def flattened(values: Sequence[Any]) -> tuple[Sequence[Any], list[int], set[type]]:
    """The leaves of lists in lists in order, their shape, and the types among them.

    Raises Irregular.
    """
    # PERF: level by level in C (map, chain), 5 ms for 150,000 numbers three levels deep.
    level, shape = values, [len(values)]
    while True:
        types = set(map(type, level))
        if list not in types:
            return level, shape, types
        if len(types) > 1:
            raise Irregular(Irregularity.MIXED, level)
        sizes = set(map(len, level))
        if len(sizes) > 1:
            raise Irregular(Irregularity.RAGGED, level)
        if len(shape) == MAX_DIMENSIONS:
            raise Irregular(Irregularity.DEEP, level)
        shape.append(sizes.pop())
        level = list(chain.from_iterable(level))
