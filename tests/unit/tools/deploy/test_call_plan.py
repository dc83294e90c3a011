"""The requests of `deploy`, whose names follow from what they ask for."""

import pytest
from msgspec.structs import replace

from tfs_proxy.tools.deploy import DeployOptions, call_plan
from tfs_proxy.values.errors import SettingsError

OPTIONS = DeployOptions(
    name="shop",
    role="arn:aws:iam::123456789012:role/endpoint",
    instance_type="ml.m5.large",
    image="123456789012.dkr.ecr.eu-west-1.amazonaws.com/tfs-proxy:cpu",
    bucket="s3://models/prod/",
    environment={"A": "b"},
)


def test_names_change_with_what_is_deployed_and_with_nothing_else() -> None:
    name = call_plan(OPTIONS, "digest").requests["CreateModel"]["ModelName"]
    others = [
        call_plan(OPTIONS, "other"),
        call_plan(replace(OPTIONS, count=2), "digest"),
        call_plan(replace(OPTIONS, environment={"A": "c"}), "digest"),
    ]

    assert call_plan(OPTIONS, "digest").requests["CreateModel"]["ModelName"] == name
    assert len({name, *(plan.requests["CreateModel"]["ModelName"] for plan in others)}) == 4


@pytest.mark.parametrize(
    ("changes", "member"),
    [
        ({"role": "endpoint"}, "ExecutionRoleArn"),
        ({"instance_type": "m5.large"}, "InstanceType"),
        ({"name": "my_shop"}, "ModelName"),
        ({"name": "s" * 63}, "ModelName"),
        ({"count": 0}, "InitialInstanceCount"),
        ({"environment": {"A": "b" * 1025}}, "Environment.A"),
    ],
)
def test_what_aws_would_refuse_is_refused_before(changes: dict[str, object], member: str) -> None:
    with pytest.raises(SettingsError, match=member):
        call_plan(replace(OPTIONS, **changes), "digest")
