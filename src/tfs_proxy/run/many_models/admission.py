"""Decides which models may be loaded now: by size, memory of earlier loads, and a few at a time."""

import asyncio
import math
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
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
MEMORY_MARGIN: Final = 0.1
"""Share of the memory that a load leaves free: estimates err, and requests take some."""

LONGEST_TURN_SECONDS: Final = 30.0
"""A longer load goes on without its turn: it mostly waits by then."""


class ModelUse(Struct, frozen=True):
    """A loaded model: its memory, the time of its last request, and true if one is being answered.

    ``used_at`` is on the clock of `time.monotonic`; a model without a request counts from its load.
    """

    name: str
    memory_bytes: int
    used_at: float
    in_use: bool = False


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

    def needed_by(self, bytes_on_disk: int) -> int:
        """The memory of a model of the kind that takes most: only an open archive tells the kind."""
        with_workers = [stack for stack in self.measured if stack.has_workers]
        without = [stack for stack in self.measured if not stack.has_workers]
        known = [estimate_from(stacks) for stacks in (with_workers, without) if stacks]
        estimates = known or [(BASE_BYTES, MODEL_FACTOR)]
        return max(math.ceil(base_bytes + factor * bytes_on_disk) for base_bytes, factor in estimates)


def refusal(name: str, bytes_on_disk: int, occupancy: Occupancy) -> NotEnoughResources | None:
    """The reason why the model ``name`` can't be loaded now; None if it can."""
    memory = occupancy.memory
    if memory is None:
        return None
    needed_bytes = occupancy.needed_by(bytes_on_disk) + occupancy.first_bytes
    # Loads under way were promised this, and have not taken it yet.
    promised_bytes = sum(
        max(0, occupancy.needed_by(stack.bytes_on_disk) - stack.memory_bytes) for stack in occupancy.loading
    )
    kept_bytes = math.ceil(MEMORY_MARGIN * memory.limit_bytes)
    missing_bytes = needed_bytes + promised_bytes + kept_bytes - memory.free_bytes
    if missing_bytes <= 0:
        return None
    promised = f" ({_megabytes(promised_bytes)} for loads under way)" if promised_bytes else ""
    needs = f"about {_megabytes(needed_bytes)} ({_megabytes(bytes_on_disk)} on disk)"
    left = f"{_megabytes(memory.free_bytes)} of {_megabytes(memory.limit_bytes)} are free{promised}"
    return NotEnoughResources(
        f"model {name} needs {needs} of memory, and {left}, of which {_megabytes(kept_bytes)} stay "
        f"free: {_megabytes(missing_bytes)} too little. Unload a model, or give the container more memory.",
        missing_bytes,
    )


def estimate_from(measured: Sequence[StackMemory]) -> tuple[float, float]:
    """Memory of a stack of one kind, and more for each byte of its model, by at least one in ``measured``.

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
    return max(0.0, base_bytes), factor


def _megabytes(size_bytes: int) -> str:
    return f"{math.ceil(size_bytes / MEGABYTE)} MB"


def bytes_on_disk(path: Path) -> int:
    """The size of a file, or of those below a folder, but not of any number; links count as their targets.

    0 if it is unknown. An archive has its compressed size. Waits for the disk: call it in a thread.
    """
    try:
        if not path.is_dir():
            return _size(path)
        found = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
        return sum(map(_size, {file.resolve() for file in islice(found, MOST_MEMBERS)}))
    except OSError:  # a folder that can't be entered
        return 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


@asynccontextmanager
async def turn(turns: asyncio.Semaphore) -> AsyncIterator[None]:
    """Waits for one of the ``turns``, and holds it for the block, but not for long."""
    await turns.acquire()
    held = ExitStack()
    held.callback(turns.release)
    ending = asyncio.get_running_loop().call_later(LONGEST_TURN_SECONDS, held.close)
    try:
        yield
    finally:
        ending.cancel()
        held.close()
