"""Commands run within the tests' own process, whose state they change."""

import logging
import signal
from collections.abc import Iterator

import pytest

from tfs_proxy.run.host.processes import stop_signals


@pytest.fixture(autouse=True)
def _process_as_before() -> Iterator[None]:
    """Undo what a command sets: handlers of signals, and the log."""
    of_signals = {number: signal.getsignal(number) for number in stop_signals()}
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    for number, handler in of_signals.items():
        signal.signal(number, handler)
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
