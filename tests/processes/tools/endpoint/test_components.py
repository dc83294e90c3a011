"""Inference components: models with copies of their own on a variant that has none."""

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from support.endpoints import ROLE, Endpoint, described, of_image, running_endpoint, variant
from support.remote_container import remote_container
from support.waiting import wait_until

SECONDS = 60.0
RESOURCES = {"MinMemoryRequiredInMb": 128, "NumberOfCpuCoresRequired": 1}
BARE = {name: value for name, value in variant("v", "").items() if name != "ModelName"}
"""A variant without a model of its own."""


def of_model(name: str) -> dict[str, object]:
    return {"ModelName": name, "ComputeResourceRequirements": RESOURCES}


def component(name: str, specification: dict[str, object], copies: int = 1) -> dict[str, Any]:
    """A request to create it on the variant of the endpoint `shop`."""
    return {
        "InferenceComponentName": name,
        "EndpointName": "shop",
        "VariantName": "v",
        "Specification": specification,
        "RuntimeConfig": {"CopyCount": copies},
    }


def test_components_come_go_and_are_asked_by_name(tmp_path: Path) -> None:
    """One from the file, by a model; another by a call, with a container of its own."""
    with remote_container(answer=b"one") as one, remote_container(answer=b"two") as two:
        content = described({"m": of_image(one.address)}, [BARE], ExecutionRoleArn=ROLE)
        content["CreateInferenceComponent"] = component("first", of_model("m"), copies=2)
        with running_endpoint(tmp_path, content) as endpoint:
            client = endpoint.control_plane
            asked = endpoint.invoke_endpoint(InferenceComponentName="first")
            assert asked["Body"].read() == b"one"
            with pytest.raises(ClientError, match="name one of them"):
                endpoint.invoke_endpoint()
            first = client.describe_inference_component(InferenceComponentName="first")
            assert first["RuntimeConfig"] == {"DesiredCopyCount": 2, "CurrentCopyCount": 2}

            two.healthy = False
            own = {"Container": {"Image": two.address}, "ComputeResourceRequirements": RESOURCES}
            client.create_inference_component(**component("second", own))
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


def test_components_are_changed_while_they_serve(tmp_path: Path) -> None:
    """Copies by both calls; another model takes over once it is in service, and one that fails does not."""
    with remote_container(answer=b"one") as one, remote_container(answer=b"two") as two:
        content = described(
            {name: of_image(each.address) for name, each in (("m", one), ("n", two))},
            [BARE],
            ExecutionRoleArn=ROLE,
        )
        content["CreateInferenceComponent"] = [component(name, of_model("m")) for name in ("first", "second")]
        with running_endpoint(tmp_path, content) as endpoint:
            client = endpoint.control_plane
            change(endpoint, RuntimeConfig={"CopyCount": 2})
            assert copies(endpoint) == (2, 2)
            client.update_inference_component_runtime_config(
                InferenceComponentName="first", DesiredRuntimeConfig={"CopyCount": 1}
            )
            await_service(endpoint)
            assert copies(endpoint) == (1, 1)
            change(endpoint, Specification=of_model("n"))
            assert endpoint.invoke_endpoint(InferenceComponentName="first")["Body"].read() == b"two"
            container = {"ArtifactUrl": "/none.tar.gz"}
            change(endpoint, Specification={"Container": container, "ComputeResourceRequirements": RESOURCES})
            assert endpoint.invoke_endpoint(InferenceComponentName="first")["Body"].read() == b"two"
            kept = client.describe_inference_component(InferenceComponentName="first")
            assert kept["Specification"]["ModelName"] == "n"
            with pytest.raises(ClientError, match=r"Specification\.ModelName none is unknown"):
                change(endpoint, Specification=of_model("none"))
            listed = client.list_inference_components(
                NameContains="S",
                EndpointNameEquals="shop",
                SortBy="Name",
                SortOrder="Ascending",
                MaxResults=1,
            )
            assert [each["InferenceComponentName"] for each in listed["InferenceComponents"]] == ["first"]
            assert listed["NextToken"] == "first"


def change(endpoint: Endpoint, **members: object) -> None:
    """UpdateInferenceComponent of ``first``, until it has ended."""
    endpoint.control_plane.update_inference_component(InferenceComponentName="first", **members)
    await_service(endpoint)


def await_service(endpoint: Endpoint) -> None:
    def status() -> str:
        seen = endpoint.control_plane.describe_inference_component(InferenceComponentName="first")
        return str(seen["InferenceComponentStatus"])

    wait_until(lambda: status() == "InService", SECONDS, "the component is in service")


def copies(endpoint: Endpoint) -> tuple[int, int]:
    """How many are wanted, and how many are in service."""
    seen = endpoint.control_plane.describe_inference_component(InferenceComponentName="first")
    return seen["RuntimeConfig"]["DesiredCopyCount"], seen["RuntimeConfig"]["CurrentCopyCount"]


def is_unknown(endpoint: Endpoint, component: str) -> bool:
    try:
        endpoint.invoke_endpoint(InferenceComponentName=component)
    except ClientError as error:
        return bool(error.response["Error"]["Code"] == "ValidationError")
    return False
