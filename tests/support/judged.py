"""The stack that other projects' clients are let loose on: several models in one archive, over HTTP and gRPC."""

from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pytest

from support.stack import Stack, serving

MODELS = ("half_plus_two", "multi_io", "bytes", "echo", "scalar", "versions")
ENV = {"TFS_PROXY_GRPC_PORT": "0", "SAGEMAKER_TFS_DEFAULT_MODEL_NAME": MODELS[0]}


@pytest.fixture(scope="module")
def several(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack with `MODELS`, each under its own name."""
    folder = tmp_path_factory.mktemp("models") / "several"
    for name in MODELS:
        copytree(saved_models / name, folder / name)
    with serving(str(folder), "--model-server", "embedded", env=ENV) as running:
        yield running
