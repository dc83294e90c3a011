"""Archives and settings -> the stages of a pipeline: count, ports, environment and command line."""

from contextlib import ExitStack

import pytest

from tfs_proxy.run.pipeline.run import PipelineRequest, plan
from tfs_proxy.run.pipeline.stage import StageOrder, ports_needed, process, stage
from tfs_proxy.values.errors import SettingsError


def test_a_variable_that_cannot_be_used_names_its_stage() -> None:
    order = StageOrder("a", {"SAGEMAKER_TFS_INSTANCE_COUNT": "many"})
    with pytest.raises(SettingsError, match=r"stage 2: .*SAGEMAKER_TFS_INSTANCE_COUNT"):
        ports_needed(order, 2, {})


def test_a_stage_has_its_own_variables_and_ports() -> None:
    order = StageOrder("/models/a.tar.gz", {"OWN": "1", "BOTH": "own", "SAGEMAKER_BIND_TO_PORT": "1"})
    one = stage(3, order, range(9000, 9011), {"COMMON": "2", "BOTH": "common"})
    assert (one.number, one.port, one.name) == (3, 9000, "stage 3 (a.tar.gz)")
    assert one.environ["SAGEMAKER_BIND_TO_PORT"] == "9000"
    assert one.environ["SAGEMAKER_SAFE_PORT_RANGE"] == "9001-9010"
    assert (one.environ["OWN"], one.environ["COMMON"], one.environ["BOTH"]) == ("1", "2", "own")


def test_a_stage_is_a_serving_stack() -> None:
    spec = process(stage(1, StageOrder("a b.tar.gz", {}), range(9000, 9011), {}), "embedded")
    assert spec.argv[3:] == ("serve", "a b.tar.gz", "--host", "127.0.0.1", "--model-server", "embedded")
    assert spec.name == "stage 1 (a b.tar.gz)"


def test_no_two_stages_share_a_port() -> None:
    orders = [StageOrder(f"{number}", {}) for number in range(15)]
    with ExitStack() as held:
        stages = plan(PipelineRequest(orders, "auto", {}), held)
    ports: list[int] = []
    for one in stages:
        low, high = map(int, one.environ["SAGEMAKER_SAFE_PORT_RANGE"].split("-"))
        ports += [one.port, *range(low, high + 1)]
    assert len(ports) == len(set(ports))
    assert [one.number for one in stages] == list(range(1, 16))
