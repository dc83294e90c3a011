"""Commands run within the tests' own process, whose state they change."""

import logging
import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _process_as_before() -> Iterator[None]:
    """Undo what a command sets: a handler of SIGTERM, and the log."""
    handler, handlers, level = signal.getsignal(signal.SIGTERM), logging.root.handlers[:], logging.root.level
    yield
    signal.signal(signal.SIGTERM, handler)
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
