"""Two stacks of one archive at a time: their ports and kinds, and the memory for two."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from tfs_proxy.run import archive_stacks
from tfs_proxy.run.archive_stacks import other_ports, refuse_other_kind
from tfs_proxy.settings.parsers import PortRange
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import BodyLimits, Deployment, Doors, Instance, TimeLimits
from tfs_proxy.values.errors import ArchiveError
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.values.resources import MODEL_FACTOR, WORKER_BYTES, MemoryLeft


def settings(**env: str) -> Settings:
    values: Mapping[str, str] = env
    return Settings.from_env(values)


def test_two_stacks_share_no_port_of_a_range() -> None:
    """Two ports for each model server; without a range any are taken."""
    of_two = settings(SAGEMAKER_SAFE_PORT_RANGE="20000-20007", SAGEMAKER_TFS_INSTANCE_COUNT="2")

    first, second = (Instance(0, rest_port=low + 1, grpc_port=low, grpc_socket="") for low in (20000, 20004))
    assert other_ports(of_two, ()) == other_ports(of_two, [second]) == PortRange(20000, 20007)
    assert other_ports(of_two, [first]) == PortRange(20004, 20007)
    assert other_ports(settings(), [first]) is None


def test_the_protocol_is_not_answered_by_another_program() -> None:
    """The translator goes on, and knows only one."""
    model = Deployment("m", {"m": (1,)}, (), None, (), BodyLimits(10), TimeLimits(5.0))
    refuse_other_kind(model, replace(model, models={"m": (1, 2)}), by_users=True)

    with pytest.raises(ArchiveError, match="answered by the script instead of the model: start again"):
        refuse_other_kind(model, replace(model, doors=Doors(open_inference="script")), by_users=True)


MODELS_BYTES = 100 * MEGABYTE
WANTED_BYTES = MODEL_FACTOR * MODELS_BYTES + 2 * WORKER_BYTES


@pytest.mark.parametrize(
    ("left", "warns"),
    [
        pytest.param(MemoryLeft(WANTED_BYTES * 2, WANTED_BYTES), False, id="just enough"),
        pytest.param(MemoryLeft(WANTED_BYTES * 2, WANTED_BYTES - MEGABYTE), True, id="a megabyte short"),
        pytest.param(None, False, id="unknown"),
    ],
)
def test_memory_for_two_is_told_to_be_short_before_it_is_taken(
    monkeypatch: pytest.MonkeyPatch, left: MemoryLeft | None, warns: bool
) -> None:
    """The sentence has what is wanted, models and workers, and what is free."""
    monkeypatch.setattr(archive_stacks, "memory_left", lambda: left)
    settings = Settings.from_env({"SAGEMAKER_GUNICORN_WORKERS": "2"})
    settings = settings.with_values(machine=replace(settings.machine, models_bytes=MODELS_BYTES))

    warning = archive_stacks.memory_warning(settings)

    assert (warning is not None) == warns
    if warning is not None:
        assert "may take 500 MB while the old ones serve (the models count as 2 x 100 MB)" in warning
        assert "and 499 MB are free" in warning
