"""The memory of a stack's whole process tree, watched while something happens to it."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

MEGABYTE = 1 << 20
PAUSE_SECONDS = 0.02


def tree(pid: int) -> Iterator[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        top = psutil.Process(pid)
        yield top
        yield from top.children(recursive=True)


def held_bytes(pid: int) -> dict[int, int]:
    """Memory by process, pages that are shared counted in parts (PSS)."""
    held = {}
    for process in tree(pid):
        with contextlib.suppress(psutil.Error, OSError):
            held[process.pid] = process.memory_full_info().pss
    return held


def anonymous_bytes(pid: int) -> int:
    """Memory of the whole tree apart from files, so that neither other processes nor evictions change it."""
    held = 0
    for process in tree(pid):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
            held += next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss_Anon:"))
    return held


class Watch:
    """Watches from entering to leaving: ``peak_mb`` over the beginning.

    Beyond ``stop_mb`` it kills the largest process, so that a stack without a bound does not take the
    machine with it: ``stopped`` counts that.
    """

    def __init__(self, pid: int, stop_mb: float) -> None:
        self._pid = pid
        self._stop_bytes = stop_mb * MEGABYTE
        self._idle_bytes = self._peak_bytes = 0
        self.stopped = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def peak_mb(self) -> int:
        return (self._peak_bytes - self._idle_bytes) // MEGABYTE

    def __enter__(self) -> Self:
        self._idle_bytes = self._peak_bytes = sum(held_bytes(self._pid).values())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(PAUSE_SECONDS):
            held = held_bytes(self._pid)
            total = sum(held.values())
            self._peak_bytes = max(self._peak_bytes, total)
            if total - self._idle_bytes > self._stop_bytes:
                largest = max((pid for pid in held if pid != self._pid), key=held.__getitem__)
                self.stopped += 1
                with contextlib.suppress(psutil.Error):
                    psutil.Process(largest).kill()
