"""The clients that judge, one fixture each: `judges("kserve")` is the environment in which one runs."""

from collections.abc import Callable

import pytest

from support.judges import Judge, judge

Judges = Callable[[str], Judge]


@pytest.fixture(scope="session")
def judges() -> Judges:
    """Finds an installed client by its name; skips the test if it is not installed."""
    return judge
