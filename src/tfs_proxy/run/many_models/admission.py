"""Decides which models may be loaded now: by size, memory of earlier loads, and a few at a time."""

import asyncio
import math
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import combinations, islice
from pathlib import Path
from statistics import median
from typing import Final

from msgspec import Struct

from tfs_proxy.model.extract import MOST_MEMBERS
from tfs_proxy.values.errors import NotEnoughResources
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.values.resources import MODEL_FACTOR, MemoryLeft

MODEL_SERVER_BYTES = 350 * MEGABYTE
"""Memory of an embedded model server without a model; the official one takes less."""

BASE_BYTES = 32 * MEGABYTE
"""Memory of a stack without its model, until one was measured: at most a worker that is forked."""

LEAST_FACTOR = 1.0
MOST_FACTOR = 10.0
LEAST_DIFFERENCE_BYTES = 32 * MEGABYTE
"""Models of more similar sizes tell nothing about the factor: their scripts differ by more."""

MOST_SAMPLES = 50  # the factor is the median over all pairs

MARGIN_SETTING = "TFS_PROXY_MULTI_MODEL_MEMORY_MARGIN"


class StackMemory(Struct, frozen=True):
    """A model's size on disk, and the memory of the processes that serve it.

    ``has_workers`` is true for models with workers of their own.
    """

    bytes_on_disk: int
    memory_bytes: int
    has_workers: bool = True


class Occupancy(Struct, frozen=True):
    """The state before a load.

    ``measured`` has stacks that were loaded before, the latest last, whether they still are or not;
    ``loading`` those under way, with what they take so far. ``memory`` is None if nobody knows how much there
    is. ``first_bytes`` is what this load alone takes on top, since nothing was loaded before.
    """

    measured: Sequence[StackMemory]
    loading: Sequence[StackMemory]
    memory: MemoryLeft | None
    first_bytes: int = 0

    def estimate(self) -> "MemoryEstimates":
        by_kind = [
            [stack for stack in self.measured if stack.has_workers is has_workers]
            for has_workers in (True, False)
        ]
        known = [estimate_from(stacks) for stacks in by_kind if stacks]
        return MemoryEstimates(known or [MemoryEstimate(BASE_BYTES, MODEL_FACTOR)])


class MemoryEstimate(Struct, frozen=True):
    """A stack's memory: ``base_bytes``, and ``factor`` bytes for each byte of its model on disk."""

    base_bytes: float
    factor: float

    def for_model(self, bytes_on_disk: int) -> int:
        return math.ceil(self.base_bytes + self.factor * bytes_on_disk)


class MemoryEstimates(Struct, frozen=True):
    """One estimate for each kind of stack; only an open archive tells which kind a model is."""

    each: Sequence[MemoryEstimate]

    def for_model(self, bytes_on_disk: int) -> int:
        """The memory of one stack in bytes, of the kind that takes most."""
        return max(estimate.for_model(bytes_on_disk) for estimate in self.each)


def refusal(
    name: str, bytes_on_disk: int, occupancy: Occupancy, memory_margin: float
) -> NotEnoughResources | None:
    """The reason why the model ``name`` can't be loaded now; None if it can.

    ``memory_margin`` is the share of memory that is kept free.
    """
    if occupancy.memory is None:
        return None
    estimate = occupancy.estimate()
    needed_bytes = estimate.for_model(bytes_on_disk) + occupancy.first_bytes
    promised_bytes = _still_to_take(occupancy.loading, estimate)
    kept_bytes = math.ceil(memory_margin * occupancy.memory.limit_bytes)
    missing_bytes = needed_bytes + promised_bytes + kept_bytes - occupancy.memory.free_bytes
    if missing_bytes <= 0:
        return None
    needs = f"about {_megabytes(needed_bytes)} ({_megabytes(bytes_on_disk)} on disk)"
    return NotEnoughResources(
        f"model {name} needs {needs} of memory, and {_left(occupancy.memory, promised_bytes)}, of which "
        f"{MARGIN_SETTING}={memory_margin:g} keeps {_megabytes(kept_bytes)} free: "
        f"{_megabytes(missing_bytes)} too little. Unload a model, give the container more memory, "
        "or lower the margin.",
        missing_bytes,
    )


def estimate_from(measured: Sequence[StackMemory]) -> MemoryEstimate:
    """Memory of stacks of one kind, from at least one in ``measured``, the latest last.

    The factor is the median slope between two models of different sizes, the base the median of what
    remains (Theil and Sen's line): one script that takes a lot by itself changes neither.
    """
    samples = measured[-MOST_SAMPLES:]
    slopes = [
        (larger.memory_bytes - smaller.memory_bytes) / (larger.bytes_on_disk - smaller.bytes_on_disk)
        for smaller, larger in combinations(sorted(samples, key=lambda stack: stack.bytes_on_disk), 2)
        if larger.bytes_on_disk - smaller.bytes_on_disk >= LEAST_DIFFERENCE_BYTES
    ]
    factor = min(max(median(slopes), LEAST_FACTOR), MOST_FACTOR) if slopes else float(MODEL_FACTOR)
    base_bytes = median(stack.memory_bytes - factor * stack.bytes_on_disk for stack in samples)
    return MemoryEstimate(max(0.0, base_bytes), factor)


def _still_to_take(loading: Sequence[StackMemory], estimate: MemoryEstimates) -> int:
    """Memory that loads under way were promised and have not taken yet."""
    return sum(max(0, estimate.for_model(stack.bytes_on_disk) - stack.memory_bytes) for stack in loading)


def _left(memory: MemoryLeft, promised_bytes: int) -> str:
    left = f"{_megabytes(memory.free_bytes)} of {_megabytes(memory.limit_bytes)} are free"
    return f"{left} ({_megabytes(promised_bytes)} for loads under way)" if promised_bytes else left


def _megabytes(size_bytes: int) -> str:
    return f"{math.ceil(size_bytes / MEGABYTE)} MB"


def size_of(url: str) -> int:
    """Bytes on disk of what is to be loaded; 0 if unknown. Waits for the disk: call it in a thread."""
    try:
        return bytes_on_disk(Path(url))
    except OSError:
        return 0


def bytes_on_disk(path: Path, most_files: int = MOST_MEMBERS) -> int:
    """The size of a file, or of ``most_files`` below a folder; links count as their targets.

    0 if there is nothing. An archive has its compressed size. Raises OSError if a folder can't be entered.
    """
    if not path.is_dir():
        return _size(path)
    found = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    return sum(map(_size, {file.resolve() for file in islice(found, most_files)}))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


LONGEST_TURN_SECONDS: Final = 30.0
"""A longer load goes on without its turn: it mostly waits by then."""


class Turns:
    """``count`` turns at a time; each ends with its block, or after ``longest_seconds``."""

    def __init__(self, count: int, longest_seconds: float = LONGEST_TURN_SECONDS) -> None:
        self._free = asyncio.Semaphore(count)
        self._longest_seconds = longest_seconds

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Waits for a turn, and holds it."""
        await self._free.acquire()
        has_turn = True

        def end() -> None:
            nonlocal has_turn
            if has_turn:
                has_turn = False
                self._free.release()

        ending = asyncio.get_running_loop().call_later(self._longest_seconds, end)
        try:
            yield
        finally:
            ending.cancel()
            end()
