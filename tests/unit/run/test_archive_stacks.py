"""Two stacks of one archive at a time: their ports and kinds."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from tfs_proxy.run.archive_stacks import other_ports, refuse_other_kind
from tfs_proxy.settings.parsers import PortRange
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import BodyLimits, Deployment, Doors, Instance, TimeLimits
from tfs_proxy.values.errors import ArchiveError


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
