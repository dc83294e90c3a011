"""Commands, run within the tests' own process."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tfs_proxy.cli import main


class Said(NamedTuple):
    out: str
    err: str


Command = Callable[..., Said]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Command:
    """Runs a command, which ends with the status ``ends``, and returns what it has said."""

    def run(*words: object, ends: int = 0) -> Said:
        try:
            status: object = main([str(word) for word in words])
        except SystemExit as end:  # of the parser
            status = end.code
        assert status == ends
        return Said(*capfd.readouterr())

    return run
