"""Holds calls in the middle until a test lets them go on, so that no test guesses how long anything takes.

A held call, of a script (`SCRIPT`) or of the model `gate`, leaves a file at the path that it gets, and waits
until there is a file `open` beside it.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from support.waiting import wait_until

BEGUN_WITHIN_SECONDS = 180.0
SCRIPT = """
import pathlib
import time


def hold(path):
    mark = pathlib.Path(path)
    mark.touch()
    while not mark.with_name("open").exists():
        time.sleep(0.01)
"""
"""The beginning of a script whose calls can be held."""

MODEL_SCRIPT = f"""{SCRIPT}
def model_fn(model_dir):
    return "answered"


def transform_fn(model, data, content_type, accept):
    if data.startswith(b"/"):
        hold(data.decode())
    return model, "text/plain"
"""
"""A script that is the model, and holds a call with a path as its body."""


class Gate:
    """A gate in a new folder; shut, until ``open`` is called."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder

    def mark(self, name: str = "call") -> str:
        """The path that a call needs to be held here; several calls at once need several names."""
        return str(self._folder / name)

    def wait_for(self, count: int = 1) -> None:
        """Wait until so many calls are held."""
        wait_until(
            lambda: len(list(self._folder.iterdir())) >= count,
            BEGUN_WITHIN_SECONDS,
            f"{count} calls are held",
            details=lambda: sorted(self._folder.iterdir()),
        )

    def open(self) -> None:
        """Let all calls go on, also those to come."""
        (self._folder / "open").touch()

    def shut(self) -> None:
        """Hold the calls to come."""
        (self._folder / "open").unlink()


@contextlib.contextmanager
def gate(folder: Path) -> Iterator[Gate]:
    """A gate that is opened at the end of the block, whatever happens in it."""
    shut = Gate(folder)
    try:
        yield shut
    finally:
        shut.open()
