"""How a container is started: variables and folders as SageMaker sets them; bodies that are made long."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from tfs_proxy.conform.check import NotRun, Occasion
from tfs_proxy.conform.occasions import (
    MODEL_NAMES,
    environment_of_100,
    pipeline_order,
    snapshot,
    start_order,
)
from tfs_proxy.conform.requests_file import KnownRequest, padded
from tfs_proxy.conform.target import Capability, of_labels

NOTHING: frozenset[Capability] = frozenset()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "saved_model.pb").write_bytes(b"model")
    return folder


def test_the_largest_environment() -> None:
    """As CreateModel takes it: 100 entries, 1,024 bytes each, 32 KB together."""
    env = environment_of_100()
    total = sum(len(name) + len(value) for name, value in env.items())

    assert len(env) == 100
    assert max(map(len, [*env, *env.values()])) == 1024
    assert 32_000 < total <= 32 * 1024


@pytest.mark.parametrize("port", [8080, 65_530])
def test_the_safe_range_is_beside_the_port(port: int) -> None:
    """Also at the end of all ports."""
    low, high = map(int, pipeline_order(port).env["SAGEMAKER_SAFE_PORT_RANGE"].split("-"))

    assert 0 < low < high < 65_536
    assert not low <= port <= high


def test_a_read_only_folder_is_a_copy(model: Path) -> None:
    """The user's own folder keeps its modes, and the copy goes."""
    with ExitStack() as folders:
        order = start_order(Occasion.READ_ONLY, model, NOTHING, folders)
        assert order.model
        assert order.model != model
        assert (order.model / "1" / "saved_model.pb").stat().st_mode & 0o777 == 0o444
        assert set(snapshot(order.model)) == set(snapshot(model)) == {"1", "1/saved_model.pb"}

    assert not order.model.exists()
    assert os.access(model / "1", os.W_OK)


def test_models_to_load(model: Path) -> None:
    """One copy for each name, where SageMaker has them."""
    with ExitStack() as folders:
        order = start_order(Occasion.MULTI_MODEL, model, frozenset({Capability.MULTI_MODEL}), folders)
        assert order.models
        assert all((order.models / name / "model/1/saved_model.pb").exists() for name in MODEL_NAMES)
        assert order.env == {"SAGEMAKER_MULTI_MODEL": "true"}


@pytest.mark.parametrize("occasion", [Occasion.PIPELINE, Occasion.MULTI_MODEL])
def test_what_a_container_does_not_say_is_not_judged(occasion: Occasion, model: Path) -> None:
    """The reason names the flag and the label."""
    with ExitStack() as folders, pytest.raises(NotRun, match=r"--.*com.amazonaws.sagemaker.capabilities"):
        start_order(occasion, model, NOTHING, folders)


def test_labels() -> None:
    """Only true says so."""
    labels = {Capability.PIPELINE.label: "true", Capability.MULTI_MODEL.label: "false", "other": "true"}

    assert of_labels(labels) == {Capability.PIPELINE}


def test_json_is_padded_without_another_meaning() -> None:
    """In front, so that a body that is cut has nothing of it."""
    body, is_same = padded(KnownRequest("application/json; charset=utf-8", b"[1]"), 100)

    assert (len(body), body.strip(), body[-3:], is_same) == (100, b"[1]", b"[1]", True)


def test_other_bodies_are_repeated() -> None:
    """What that means is not known."""
    body, is_same = padded(KnownRequest("text/csv", b"1,2\n"), 10)

    assert (body, is_same) == (b"1,2\n" * 3, False)
    assert padded(KnownRequest("text/csv", b""), 3) == (b"\n" * 4, False)
