"""The requests of `deploy`, whose names follow from what they ask for."""

import pytest
from msgspec.structs import replace

from tfs_proxy.deploy import DeployOptions, call_plan
from tfs_proxy.errors import ArchiveError, SettingsError

OPTIONS = DeployOptions(
    name="shop",
    role="arn:aws:iam::123456789012:role/endpoint",
    instance_type="ml.m5.large",
    image="123456789012.dkr.ecr.eu-west-1.amazonaws.com/tfs-proxy:cpu",
    bucket="s3://models/prod/",
    environment={"A": "b"},
)


def test_three_requests_belong_together() -> None:
    """The config names the model, the endpoint the config, the model the archive that is uploaded."""
    plan = call_plan(OPTIONS, "digest")

    model, config, endpoint = plan.requests.values()
    name = model["ModelName"]
    assert name.startswith("shop-")
    assert plan.address == f"s3://models/prod/{name}/model.tar.gz"
    assert model["PrimaryContainer"] == {
        "Image": OPTIONS.image,
        "ModelDataUrl": plan.address,
        "Environment": {"A": "b"},
    }
    assert config == {
        "EndpointConfigName": name,
        "ProductionVariants": [
            {
                "VariantName": "AllTraffic",
                "ModelName": name,
                "InstanceType": "ml.m5.large",
                "InitialInstanceCount": 1,
            }
        ],
    }
    assert endpoint == {"EndpointName": "shop", "EndpointConfigName": name}


def test_names_change_with_what_is_deployed_and_with_nothing_else() -> None:
    """The same again has the same names, so a call that failed can be repeated."""
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
    """With AWS's name of the member."""
    with pytest.raises(SettingsError, match=member):
        call_plan(replace(OPTIONS, **changes), "digest")


def test_bucket_must_be_an_address() -> None:
    """Of S3."""
    with pytest.raises(ArchiveError, match="not an S3 address"):
        call_plan(replace(OPTIONS, bucket="models"), "digest")
