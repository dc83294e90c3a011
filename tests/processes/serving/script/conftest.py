"""Shared by tests of scripts on running stacks."""

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the script and the tests leave each other files."""
    return tmp_path_factory.mktemp("marks")
