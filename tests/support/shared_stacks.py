"""Stacks that tests share, one of each kind for a whole session: tests leave them as they are."""

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from support.archives import has_nginx, stand_in_archive, stand_in_program
from support.multi_model import MultiModelStack, serving_many
from support.stack import Stack, serving

KINDS = ("served", "stand_in", "many")
PAYLOAD_MB, STAND_IN_PAYLOAD_MB = 40, 1


class ByStack(LoadFileScheduling):  # type: ignore[misc]
    """Tests of a file go to one worker, and so do files whose tests share a stack."""

    def _split_scope(self, nodeid: str) -> str:
        return _kind_in(self.config.rootpath / nodeid.partition("::")[0])


@functools.cache
def _kind_in(path: Path) -> str:
    text = path.read_text()
    for kind in KINDS:
        if re.search(rf"\b{kind}: (MultiModelStack|Stack)\b", text) and f"def {kind}(" not in text:
            return kind
    return str(path)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Schedule by shared stacks where files would be kept together."""
    return ByStack(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def served(saved_models: Path) -> Iterator[Stack]:
    """All our SavedModels on the embedded server, without a script, behind nginx."""
    if not has_nginx():
        pytest.skip("nginx is not installed")
    env = {
        "SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "half_plus_two",
        "SAGEMAKER_TFS_VERSION_LABELS": "stable=1,canary=2",
        "SAGEMAKER_MAX_PAYLOAD_IN_MB": str(PAYLOAD_MB),
        "TFS_PROXY_MAX_DECODED_TOTAL_MB": "500",
        "TFS_PROXY_GRPC_PORT": "0",
    }
    with serving(str(saved_models), "--model-server", "embedded", env=env) as running:
        yield running


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The stand-in's model without a script behind nginx, with a small body limit and two workers."""
    if not has_nginx():
        pytest.skip("nginx is not installed")
    folder = tmp_path_factory.mktemp("stand_in")
    archive = stand_in_archive(folder / "model.tar.gz")
    env = {
        "SAGEMAKER_GUNICORN_WORKERS": "2",
        "SAGEMAKER_MAX_PAYLOAD_IN_MB": str(STAND_IN_PAYLOAD_MB),
        "TFS_PROXY_GRPC_PORT": "0",
    }
    with serving(str(archive), "--model-server", stand_in_program(folder), env=env) as running:
        yield running


@pytest.fixture(scope="session")
def many() -> Iterator[MultiModelStack]:
    """A multi-model endpoint as SageMaker starts it, for tests that take away the models which they add."""
    if not has_nginx():
        pytest.skip("nginx is not installed")
    with serving_many() as stack:
        yield stack
