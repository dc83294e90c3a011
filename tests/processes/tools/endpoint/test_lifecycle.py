"""Endpoints start, change and end without losing a request."""

import json
import os
import signal
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from support.endpoints import Endpoint, described, of_image, refusal, running_endpoint, variant
from support.multi_model import saying, script_model
from support.remote_container import RemoteContainer, remote_container
from support.waiting import wait_until

SECONDS = 60.0


CAPTURE = {
    "DataCaptureConfig": {
        "InitialSamplingPercentage": 100,
        "DestinationS3Uri": "s3://bucket/captured",
        "CaptureOptions": [{"CaptureMode": "Input"}],
    }
}


def config_of(container: RemoteContainer, name: str) -> dict[str, Any]:
    """A CONFIG.json whose model and config have this name."""
    content = described({name: of_image(container.address)}, [variant("v", name)])
    content["CreateEndpointConfig"]["EndpointConfigName"] = name
    content["CreateEndpoint"]["EndpointConfigName"] = name
    return content


def configure(client: Any, **container: str) -> None:
    """Create the model ``m`` of a container, and the config ``c`` for it."""
    client.create_model(ModelName="m", PrimaryContainer=container)
    client.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[variant("v", "m")])


def status_of(endpoint: Endpoint) -> str:
    return str(endpoint.control_plane.describe_endpoint(EndpointName="shop")["EndpointStatus"])


def test_endpoint_waits_for_pings(tmp_path: Path) -> None:
    """Its config has DataCaptureConfig, too: the log says that nothing is recorded, and what records."""
    with remote_container(healthy=False) as container:
        path, config = tmp_path / "config.json", config_of(container, "first")
        path.write_text(
            json.dumps(config | {"CreateEndpointConfig": config["CreateEndpointConfig"] | CAPTURE})
        )
        with closing(Endpoint(str(path))) as endpoint:
            endpoint.wait_for_log(
                "endpoint shop: DataCaptureConfig records nothing here: set TFS_PROXY_CAPTURE"
            )
            assert status_of(endpoint) == "Creating"
            with pytest.raises(ClientError) as raised:
                endpoint.invoke_endpoint()
            assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 429
            container.healthy = True
            endpoint.wait_ready()
            assert status_of(endpoint) == "InService"
            assert endpoint.invoke_endpoint()["Body"].read() == b"cba"


def test_endpoint_without_endpoints_waits_for_calls_that_create_them(tmp_path: Path) -> None:
    unused = {"ModelName": "unused", "PrimaryContainer": {"ModelDataUrl": "m"}}
    (tmp_path / "config.json").write_text(json.dumps(unused))
    with remote_container() as container, closing(Endpoint(str(tmp_path / "config.json"))) as endpoint:
        endpoint.wait_ready()
        client = endpoint.control_plane
        configure(client, Image=container.address)
        client.create_endpoint(EndpointName="shop", EndpointConfigName="c")
        client.get_waiter("endpoint_in_service").wait(EndpointName="shop", WaiterConfig={"Delay": 1})
        assert endpoint.invoke_endpoint()["Body"].read() == b"cba"
        client.delete_endpoint(EndpointName="shop")
        assert client.list_endpoints()["Endpoints"] == []


def test_container_that_ends_at_its_start_ends_the_run(tmp_path: Path) -> None:
    content = described({"m": {"PrimaryContainer": {"ModelDataUrl": "none.tar.gz"}}}, [variant("v", "m")])
    (tmp_path / "config.json").write_text(json.dumps(content))
    with closing(Endpoint(str(tmp_path / "config.json"))) as endpoint:
        assert endpoint.wait() == 1
        assert "v/1: the container primary has ended" in endpoint.log
        assert "none.tar.gz" in endpoint.log


def test_start_that_fails_takes_as_long_as_that_of_serve(tmp_path: Path) -> None:
    """Also in the background of a shell, which has SIGQUIT ignored: nginx would not be asked to end by it."""
    ignoring = ("sh", "-c", "trap '' QUIT; exec \"$@\"", "sh")
    with closing(Endpoint(launcher=ignoring)) as endpoint:
        endpoint.wait_ready()
        client = endpoint.control_plane
        configure(client, ModelDataUrl="/none.tar.gz")
        client.create_endpoint(EndpointName="shop", EndpointConfigName="c")
        wait_until(lambda: status_of(endpoint) == "Failed", SECONDS, "the start has failed")
        assert "did not stop" not in endpoint.log


def test_a_second_creation_is_refused_in_aws_s_words(tmp_path: Path) -> None:
    """SDK 2 goes on with what is there if it reads them."""
    with (
        remote_container() as container,
        running_endpoint(tmp_path, config_of(container, "first")) as endpoint,
    ):
        client = endpoint.control_plane
        for call, request, words in (
            (client.create_model, {"ModelName": "first", "PrimaryContainer": {"Image": "i"}}, 'model "'),
            (
                client.create_endpoint_config,
                {"EndpointConfigName": "first", "ProductionVariants": [variant("v", "first")]},
                'endpoint configuration "',
            ),
            (
                client.create_endpoint,
                {"EndpointName": "shop", "EndpointConfigName": "first"},
                'endpoint "arn:aws:sagemaker:local:000000000000:endpoint/shop".',
            ),
        ):
            code, message = refusal(call, **request)
            assert code == "ValidationException"
            assert message.startswith(f"Cannot create already existing {words}")


def test_serverless_variant_takes_4_mb_and_few_at_once(tmp_path: Path) -> None:
    """In both directions, as on SageMaker; beyond MaxConcurrency a call is throttled."""
    content = described({"m": {}}, [variant("v", "m")])
    serverless = {"MemorySizeInMB": 1024, "MaxConcurrency": 1}
    content["CreateEndpointConfig"]["ProductionVariants"] = [
        {"VariantName": "v", "ModelName": "m", "ServerlessConfig": serverless}
    ]
    most = 4 * 1024 * 1024
    with remote_container() as container:
        content["CreateModel"] = [{"ModelName": "m", **of_image(container.address)}]
        with running_endpoint(tmp_path, content) as endpoint:
            assert len(endpoint.invoke_endpoint(b"x" * most)["Body"].read()) == most
            with pytest.raises(ClientError) as raised:
                endpoint.invoke_endpoint(b"x" * (most + 1))
            assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 413
            container.answer = b"x" * (most + 1)
            with pytest.raises(ClientError, match="the most is 4194304"):
                endpoint.invoke_endpoint()
            container.answer = None
            container.arrived.clear()
            container.open.clear()
            asking = threading.Thread(target=endpoint.invoke_endpoint)
            asking.start()
            assert container.arrived.wait(SECONDS)
            with pytest.raises(ClientError, match="ThrottlingException"):
                endpoint.invoke_endpoint()
            container.open.set()
            asking.join()


def test_update_loses_no_request(tmp_path: Path) -> None:
    """What the old container has it answers, while all new requests go to the new one."""
    with (
        remote_container(answer=b"old") as old,
        remote_container(answer=b"new") as new,
        running_endpoint(tmp_path, config_of(old, "first")) as endpoint,
    ):
        old.open.clear()
        answers: list[bytes] = []
        asking = threading.Thread(target=lambda: answers.append(endpoint.invoke_endpoint()["Body"].read()))
        asking.start()
        assert old.arrived.wait(SECONDS)
        client, second = endpoint.control_plane, config_of(new, "second")
        client.create_model(**second["CreateModel"][0])
        client.create_endpoint_config(**second["CreateEndpointConfig"])
        client.update_endpoint(EndpointName="shop", EndpointConfigName="second")
        wait_until(lambda: status_of(endpoint) == "InService", SECONDS, "the update has ended")

        assert endpoint.invoke_endpoint()["Body"].read() == b"new"
        assert answers == []
        old.open.set()
        asking.join()
        assert answers == [b"old"]


def test_update_that_fails_leaves_the_old_in_service(tmp_path: Path) -> None:
    with (
        remote_container(answer=b"old") as old,
        running_endpoint(tmp_path, config_of(old, "first")) as endpoint,
    ):
        client = endpoint.control_plane
        configure(client, ModelDataUrl="/none.tar.gz")
        client.update_endpoint(EndpointName="shop", EndpointConfigName="c")
        with pytest.raises(ClientError, match="is being updated"):
            client.update_endpoint(EndpointName="shop", EndpointConfigName="first")

        wait_until(lambda: status_of(endpoint) == "InService", SECONDS, "the update has ended")

        assert "has ended" in client.describe_endpoint(EndpointName="shop")["FailureReason"]
        assert endpoint.invoke_endpoint()["Body"].read() == b"old"


def test_our_container_serves_and_is_started_anew(tmp_path: Path) -> None:
    """Without Docker, as a process; two instances by a call, and another one for one that dies."""
    script_model(tmp_path / "model.tar.gz", saying("hello"))
    content = described(
        {"m": {"PrimaryContainer": {"ModelDataUrl": "model.tar.gz", "Image": "no-image:1"}}},
        [variant("v", "m")],
    )
    with running_endpoint(tmp_path, content) as endpoint:
        assert "it is served by tfs_proxy itself" in endpoint.log
        unknown = {"VariantName": "none", "DesiredInstanceCount": 2}
        with pytest.raises(ClientError, match="Variant none"):
            endpoint.control_plane.update_endpoint_weights_and_capacities(
                EndpointName="shop", DesiredWeightsAndCapacities=[unknown]
            )
        first = endpoint.invoke_endpoint("x", ContentType="text/plain")["Body"].read()
        assert first.startswith(b"hello ")
        wanted = {"VariantName": "v", "DesiredInstanceCount": 2}
        endpoint.control_plane.update_endpoint_weights_and_capacities(
            EndpointName="shop", DesiredWeightsAndCapacities=[wanted]
        )
        endpoint.wait_for_log("v/2 is in service")
        (dead, _) = endpoint.children()["gunicorn"][:2]
        endpoint.wait_for_log("endpoint shop: InService")
        process = dead
        while parent_of(process) != endpoint.process.pid:
            process = parent_of(process)
        os.kill(process, signal.SIGKILL)
        endpoint.wait_for_log("v/3 is in service")
        again = endpoint.invoke_endpoint("x", ContentType="text/plain")["Body"].read()
        assert again.startswith(b"hello ")


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()[1])
