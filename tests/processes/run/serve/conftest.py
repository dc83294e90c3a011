"""`serve` of a folder or an archive that changes: what tests of `--reload` share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.archives import stand_in_program
from support.following import Serve, add_version, script
from support.stack import Stack


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder with version 1, whose script answers `first`."""
    folder = tmp_path / "models"
    (folder / "m").mkdir(parents=True)
    add_version(folder, 1)
    (folder / "code").mkdir()
    (folder / "code" / "inference.py").write_text(script("first"))
    return folder


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts `serve` with flags like --reload, of a folder or archive that answers `first`; it is stopped at the end."""
    stacks: list[Stack] = []

    def start(
        model: Path | str, *flags: str, workers: str = "2", official: bool = False, **env: str
    ) -> Stack:
        server = () if official else ("--model-server", stand_in_program(tmp_path))
        stack = Stack(str(model), *flags, *server, env={"SAGEMAKER_GUNICORN_WORKERS": workers, **env})
        stacks.append(stack)
        stack.wait_ready()
        return stack

    yield start
    for stack in stacks:
        stack.close()
