"""Archives for the containers, and one sentence if no container can be started."""

from pathlib import Path

import pytest

from support import containers
from support.archives import pack

HALVES = """
def input_handler(data, context):
    return data.read().decode()

def output_handler(response, context):
    return response.content, "application/json"
"""


@pytest.fixture(scope="session", autouse=True)
def _containers() -> None:
    """Skip, and say why, if there is no engine or no image."""
    reason = containers.why_not()
    if reason:
        pytest.skip(f"nothing is run in containers here: {reason}")


@pytest.fixture(scope="session")
def plain(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("plain") / "model.tar.gz"
    return pack(target, {}, {"half_plus_two": saved_models / "half_plus_two"})


@pytest.fixture(scope="session")
def scripted(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """half_plus_two with a script of two halves, both of which pass on what they get."""
    target = tmp_path_factory.mktemp("scripted") / "model.tar.gz"
    return pack(target, {"code/inference.py": HALVES}, {"half_plus_two": saved_models / "half_plus_two"})
