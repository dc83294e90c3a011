"""Inference components: models with copies of their own on a variant that has none."""

from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from support.endpoints import ROLE, Endpoint, described, of_image, running_endpoint, variant
from support.remote_container import remote_container
from support.waiting import wait_until

SECONDS = 60.0
RESOURCES = {"MinMemoryRequiredInMb": 128, "NumberOfCpuCoresRequired": 1}


def test_components_come_go_and_are_asked_by_name(tmp_path: Path) -> None:
    """One from the file, by a model; another by a call, with a container of its own."""
    with remote_container(answer=b"one") as one, remote_container(answer=b"two") as two:
        bare = {name: value for name, value in variant("v", "").items() if name != "ModelName"}
        content = described({"m": of_image(one.address)}, [bare], ExecutionRoleArn=ROLE)
        content["CreateInferenceComponent"] = {
            "InferenceComponentName": "first",
            "EndpointName": "shop",
            "VariantName": "v",
            "Specification": {"ModelName": "m", "ComputeResourceRequirements": RESOURCES},
            "RuntimeConfig": {"CopyCount": 2},
        }
        with running_endpoint(tmp_path, content) as endpoint:
            client = endpoint.control_plane
            asked = endpoint.invoke_endpoint(InferenceComponentName="first")
            assert asked["Body"].read() == b"one"
            with pytest.raises(ClientError, match="name one of them"):
                endpoint.invoke_endpoint()
            first = client.describe_inference_component(InferenceComponentName="first")
            assert first["RuntimeConfig"] == {"DesiredCopyCount": 2, "CurrentCopyCount": 2}

            two.healthy = False
            client.create_inference_component(
                InferenceComponentName="second",
                EndpointName="shop",
                VariantName="v",
                Specification={"Container": {"Image": two.address}, "ComputeResourceRequirements": RESOURCES},
                RuntimeConfig={"CopyCount": 1},
            )
            with pytest.raises(ClientError, match="not in service yet") as raised:
                endpoint.invoke_endpoint(InferenceComponentName="second")
            assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 429
            two.healthy = True
            wait_until(
                lambda: (
                    client.describe_inference_component(InferenceComponentName="second")[
                        "InferenceComponentStatus"
                    ]
                    == "InService"
                ),
                SECONDS,
                "the second component is in service",
            )
            assert endpoint.invoke_endpoint(InferenceComponentName="second")["Body"].read() == b"two"

            client.delete_inference_component(InferenceComponentName="second")
            wait_until(lambda: is_unknown(endpoint, "second"), SECONDS, "the second component is gone")


def is_unknown(endpoint: Endpoint, component: str) -> bool:
    try:
        endpoint.invoke_endpoint(InferenceComponentName=component)
    except ClientError as error:
        return bool(error.response["Error"]["Code"] == "ValidationError")
    return False
