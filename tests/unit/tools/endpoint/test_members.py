"""Members of AWS's requests that would change what a client gets, and on which nothing acts here."""

import json
from importlib.resources import files
from typing import Any

import pytest
from botocore.model import StructureShape

from support.endpoints import variant
from tfs_proxy.tools.endpoint.aws_api import AwsError, given_members, problems, service_model

CONTAINER = {"Image": "image"}
SOURCE = {"S3Uri": "s3://bucket/", "S3DataType": "S3Prefix", "CompressionType": "None"}
ROLE, NETWORK = "arn:aws:iam::123456789012:role/r", {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}


def model(**container: Any) -> dict[str, Any]:
    return {"ModelName": "m", "PrimaryContainer": {**CONTAINER, **container}}


def config(**members: Any) -> dict[str, Any]:
    return {"EndpointConfigName": "c", "ProductionVariants": [variant("v", "m", **members)]}


ROUTE = "ProductionVariants[0].RoutingConfig"
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (
        "CreateModel",
        model(AdditionalModelDataSources=[{"ChannelName": "draft", "S3DataSource": SOURCE}]),
        "PrimaryContainer.AdditionalModelDataSources",
    ),
    (
        "CreateModel",
        model(ModelDataSource={"S3DataSource": {**SOURCE, "ETag": "e"}}),
        "PrimaryContainer.ModelDataSource.S3DataSource.ETag",
    ),
    (
        "CreateEndpointConfig",
        config(RoutingConfig={"RoutingStrategy": "PREFIX_AWARE"}),
        f"{ROUTE}.RoutingStrategy PREFIX_AWARE",
    ),
    (
        "UpdateEndpointWeightsAndCapacities",
        {
            "EndpointName": "e",
            "DesiredWeightsAndCapacities": [
                {"VariantName": "v", "ServerlessUpdateConfig": {"MaxConcurrency": 1}}
            ],
        },
        "DesiredWeightsAndCapacities[0].ServerlessUpdateConfig",
    ),
]


@pytest.mark.parametrize(("operation", "request_", "member"), REFUSED)
def test_a_member_that_would_be_dropped_is_named(
    operation: str, request_: dict[str, Any], member: str
) -> None:
    assert problems(operation, request_) == [f"{member} is not supported here: leave it out to try the rest"]


def test_members_that_change_no_answer_are_taken() -> None:
    """Those that the SDKs and the AWS CLI send besides: tags, roles, networks, hardware, metrics."""
    common = {"Tags": [{"Key": "k", "Value": "v"}], "ExecutionRoleArn": ROLE, "VpcConfig": NETWORK}
    assert not problems(
        "CreateModel",
        {
            **model(
                Mode="SingleModel",
                Environment={"A": "b"},
                ImageConfig={"RepositoryAccessMode": "Platform"},
                ModelDataSource={"S3DataSource": {**SOURCE, "ModelAccessConfig": {"AcceptEula": True}}},
            ),
            **common,
            "EnableNetworkIsolation": False,
        },
    )
    weighted = {
        "InitialVariantWeight": 1.0,
        "VolumeSizeInGB": 30,
        "ModelDataDownloadTimeoutInSeconds": 60,
        "ContainerStartupHealthCheckTimeoutInSeconds": 60,
        "RoutingConfig": {"RoutingStrategy": "RANDOM"},
        "EnableSSMAccess": True,
    }
    metrics = {"EnableDetailedObservability": True}
    assert not problems("CreateEndpointConfig", {**config(**weighted), **common, "MetricsConfig": metrics})


def test_headers_for_what_no_endpoint_has_are_refused() -> None:
    for member, header in (
        ("EnableExplanations", "x-amzn-sagemaker-enable-explanations"),
        ("InferenceComponentName", "x-amzn-sagemaker-inference-component"),
        ("PrefixAwareId", "x-amzn-sagemaker-prefix-aware-id"),
    ):
        with pytest.raises(AwsError, match=member):
            given_members("InvokeEndpoint", {header: "x"})


def test_the_table_has_aws_s_names() -> None:
    table = json.loads(files("tfs_proxy.tools.endpoint").joinpath("members.json").read_text())["acted on"]
    for service in ("sagemaker", "logs"):
        shapes = service_model(service)
        for name in set(table) & set(shapes.shape_names):
            shape = shapes.shape_for(name)
            assert isinstance(shape, StructureShape)
            assert set(table.pop(name)) <= set(shape.members), name
    assert table == {}
