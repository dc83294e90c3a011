"""What all tests of the page share: the browser, and a model that has named inputs."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.archives import pack
from support.stack import Stack, serving

if TYPE_CHECKING:
    from support.browser import Browser


@pytest.fixture
def browser() -> Iterator["Browser"]:
    """A real chromium."""
    from support.browser import browsing  # selenium may be missing

    with browsing() as opened:
        yield opened


@pytest.fixture(scope="session")
def named(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack with a model without a script whose inputs have names and shapes."""
    archive = pack(
        tmp_path_factory.mktemp("named") / "model.tar.gz", {}, {"multi_io": saved_models / "multi_io"}
    )
    with serving(str(archive), "--model-server", "embedded") as stack:
        yield stack
