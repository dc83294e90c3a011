"""Holds calls in the middle until a test lets them go on, so that nobody guesses how long anything takes.

A held call, of a script (`SCRIPT`) or of the model `gate`, leaves the file that it is told to, and waits
until there is one named `open` beside it.
"""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

BEGUN_WITHIN_SECONDS = 180.0
SCRIPT = """
import pathlib
import time


def hold(told):
    mark = pathlib.Path(told)
    mark.touch()
    while not mark.with_name("open").exists():
        time.sleep(0.01)
"""
"""The beginning of a script whose calls can be held."""


class Gate:
    """A gate in a new folder; shut, until ``open`` is called."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder

    def mark(self, name: str = "call") -> str:
        """What a call has to be told to be held here; several calls at once need several names."""
        return str(self._folder / name)

    def wait_for(self, count: int = 1) -> None:
        """Wait until so many calls are held."""
        deadline = time.monotonic() + BEGUN_WITHIN_SECONDS
        while len(list(self._folder.iterdir())) < count:
            assert time.monotonic() < deadline, "the calls have not begun"
            time.sleep(0.01)

    def open(self) -> None:
        """Let all calls go on, those to come too."""
        (self._folder / "open").touch()

    def shut(self) -> None:
        """Hold the calls to come."""
        (self._folder / "open").unlink()


@contextlib.contextmanager
def gate(folder: Path) -> Iterator[Gate]:
    """A gate that is open behind the block, whatever happens in it."""
    made = Gate(folder)
    try:
        yield made
    finally:
        made.open()
