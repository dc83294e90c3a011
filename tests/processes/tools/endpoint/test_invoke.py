"""InvokeEndpoint as boto3 makes it: headers, errors, limits, variants, pipelines and many models."""

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from support.endpoints import Endpoint, described, of_image, refusal, running_endpoint, variant
from support.remote_container import RemoteContainer, remote_container

MOST_BYTES = 6_291_456
Containers = dict[str, RemoteContainer]


@pytest.fixture(scope="module")
def containers() -> Iterator[Containers]:
    with (
        remote_container() as one,
        remote_container() as two,
        remote_container(headers={"Content-Type": "text/csv"}) as first,
        remote_container() as last,
        remote_container() as many,
    ):
        yield {"one": one, "two": two, "first": first, "last": last, "many": many}


@pytest.fixture(scope="module")
def endpoint(containers: Containers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """Variants of all kinds: two with a container each, a pipeline, named containers, many models."""
    folder = tmp_path_factory.mktemp("endpoint")
    (folder / "models" / "nested").mkdir(parents=True)
    for path in ("models/a", "models/nested/b"):
        (folder / path).mkdir(exist_ok=True)
        (folder / path / "model.txt").write_text("a model")
    stages = [{"ContainerHostname": name, "Image": containers[name].address} for name in ("first", "last")]
    models: dict[str, Any] = {
        "one": of_image(containers["one"].address),
        "two": of_image(containers["two"].address),
        "pipeline": {"Containers": stages},
        "direct": {"Containers": stages, "InferenceExecutionConfig": {"Mode": "Direct"}},
        "many": of_image(containers["many"].address, Mode="MultiModel", ModelDataUrl="models"),
    }
    variants = [
        variant("one", "one", InitialVariantWeight=3),
        variant("two", "two", InitialVariantWeight=1),
        *(variant(name, name, InitialVariantWeight=0) for name in ("pipeline", "direct", "many")),
    ]
    with running_endpoint(folder, described(models, variants)) as running:
        yield running


@pytest.fixture(autouse=True)
def _as_told(containers: Containers) -> None:
    """Every container answers with 200, and has no requests."""
    for name, container in containers.items():
        container.status, container.answer = 200, None
        container.headers = {"Content-Type": "text/csv"} if name == "first" else {}
        container.requests.clear()


def test_headers_of_the_api_go_through_both_ways_and_no_others(
    endpoint: Endpoint, containers: Containers
) -> None:
    """Neither the signature and the agent of the client, nor headers of the container's own."""
    containers["one"].headers = {
        "Content-Type": "text/plain",
        "X-Amzn-SageMaker-Custom-Attributes": "said=yes",
        "X-Amzn-SageMaker-New-Session-Id": "id; Expires=2030-01-01T00:00:00Z",
        "X-Own": "1",
        "X-Amzn-Invoked-Production-Variant": "forged",
        "Server-Timing": "a",
    }

    answer = endpoint.invoke_endpoint(
        ContentType="text/csv",
        Accept="text/plain",
        CustomAttributes="a=b",
        InferenceId="id-1",
        SessionId="NEW_SESSION",
        TargetVariant="one",
    )

    assert answer["Body"].read() == b"cba"
    members = ("ContentType", "InvokedProductionVariant", "CustomAttributes", "NewSessionId")
    assert [answer[member] for member in members] == [
        "text/plain",
        "one",
        "said=yes",
        "id; Expires=2030-01-01T00:00:00Z",
    ]
    assert set(answer["ResponseMetadata"]["HTTPHeaders"]) == {
        "content-length",
        "content-type",
        "x-amzn-invoked-production-variant",
        "x-amzn-requestid",
        "x-amzn-sagemaker-custom-attributes",
        "x-amzn-sagemaker-new-session-id",
    }
    (request,) = containers["one"].requests
    assert request.path == "/invocations"
    assert dict(request.headers) == {
        "Host": f"127.0.0.1:{containers['one'].port}",
        "Content-Type": "text/csv",
        "Accept": "text/plain",
        "X-Amzn-SageMaker-Custom-Attributes": "a=b",
        "X-Amzn-SageMaker-Target-Variant": "one",
        "X-Amzn-SageMaker-Inference-Id": "id-1",
        "X-Amzn-SageMaker-Session-Id": "NEW_SESSION",
        "Content-Length": "3",
    }


@pytest.mark.parametrize(("status", "side"), [(400, "client"), (415, "client"), (500, "server")])
def test_container_s_error_is_a_model_error_with_its_members(
    endpoint: Endpoint, containers: Containers, status: int, side: str
) -> None:
    containers["one"].status, containers["one"].answer = status, b"no such thing"

    with pytest.raises(ClientError) as raised:
        endpoint.invoke_endpoint(TargetVariant="one")

    response: Any = raised.value.response
    assert response["Error"]["Code"] == "ModelError"
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 424
    assert (response["OriginalStatusCode"], response["OriginalMessage"]) == (status, "no such thing")
    assert response["LogStreamArn"].endswith("/aws/sagemaker/Endpoints/shop:log-stream:one/1")
    assert f"Received {side} error ({status}) from primary" in response["Error"]["Message"]


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"TargetVariant": "three"}, "Variant three"),
        ({"TargetVariant": "many"}, "TargetModel is missing"),
        ({"TargetVariant": "many", "TargetModel": "none"}, "none"),
        ({"TargetVariant": "many", "TargetModel": "../config.json"}, "must be a path below"),
        ({"TargetVariant": "many", "TargetModel": "//config.json"}, "must be a path below"),
        ({"TargetVariant": "one", "TargetModel": "a"}, "TargetModel can't be used here"),
        ({"TargetVariant": "direct"}, "TargetContainerHostname is missing"),
        ({"TargetVariant": "direct", "TargetContainerHostname": "third"}, "third"),
    ],
)
def test_request_for_what_is_not_there_is_a_validation_error(
    endpoint: Endpoint, members: dict[str, str], says: str
) -> None:
    code, message = refusal(endpoint.invoke_endpoint, **members)

    assert (code, says in message) == ("ValidationError", True)


def test_unknown_endpoint_is_a_validation_error(endpoint: Endpoint) -> None:
    with pytest.raises(ClientError, match="Endpoint none of account local not found") as raised:
        endpoint.runtime.invoke_endpoint(EndpointName="none", Body=b"")

    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_bodies_have_a_limit_in_both_directions(endpoint: Endpoint, containers: Containers) -> None:
    """6 MB go through; a byte more is a 413, or a ModelError if the container answers it."""
    whole = endpoint.invoke_endpoint(b"x" * MOST_BYTES, TargetVariant="one")
    assert len(whole["Body"].read()) == MOST_BYTES
    with pytest.raises(ClientError) as raised:
        endpoint.invoke_endpoint(b"x" * (MOST_BYTES + 1), TargetVariant="one")
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 413
    containers["one"].answer = b"x" * (MOST_BYTES + 1)
    with pytest.raises(ClientError, match="ModelError"):
        endpoint.invoke_endpoint(TargetVariant="one")


def test_variants_get_their_shares_of_requests(endpoint: Endpoint, containers: Containers) -> None:
    client = endpoint.runtime

    def ask(_: int) -> str:
        return str(client.invoke_endpoint(EndpointName="shop", Body=b"")["InvokedProductionVariant"])

    with ThreadPoolExecutor(8) as pool:
        variants = Counter(pool.map(ask, range(200)))

    assert set(variants) == {"one", "two"}
    assert 120 < variants["one"] < 180
    assert len(containers["one"].requests) == variants["one"]


def test_pipeline_passes_each_answer_on(endpoint: Endpoint, containers: Containers) -> None:
    """The first one's content type is the next one's; the caller's Accept is for the last."""
    answer = endpoint.invoke_endpoint(
        b"abc", TargetVariant="pipeline", ContentType="application/json", Accept="text/plain"
    )

    assert answer["Body"].read() == b"abc"
    (first,), (last,) = (containers[name].requests for name in ("first", "last"))
    assert (first.headers["Content-Type"], first.headers.get("Accept")) == ("application/json", None)
    assert (last.body, last.headers["Content-Type"], last.headers["Accept"]) == (
        b"cba",
        "text/csv",
        "text/plain",
    )


def test_error_of_a_pipeline_names_the_container(endpoint: Endpoint, containers: Containers) -> None:
    containers["last"].status = 500

    with pytest.raises(ClientError, match="from last") as raised:
        endpoint.invoke_endpoint(TargetVariant="pipeline")

    response: Any = raised.value.response
    assert response["LogStreamArn"].endswith("pipeline/1/last")


def test_container_is_chosen_by_its_hostname(endpoint: Endpoint, containers: Containers) -> None:
    endpoint.invoke_endpoint(TargetVariant="direct", TargetContainerHostname="last")

    assert [len(containers[name].requests) for name in ("first", "last")] == [0, 1]


def test_models_are_loaded_by_the_platform_and_others_make_room(
    endpoint: Endpoint, containers: Containers
) -> None:
    """The first request loads an archive, later ones only ask; what the container calls it says nothing.

    One leading slash of a TargetModel changes nothing.
    """
    for target in ("a", "/a", "nested/b"):
        endpoint.invoke_endpoint(TargetVariant="many", TargetModel=target)

    paths = [request.path for request in containers["many"].requests]
    loads = [json.loads(each.body) for each in containers["many"].requests if each.path == "/models"]
    first, second = (load["model_name"] for load in loads)
    assert paths == [
        "/models",
        f"/models/{first}/invoke",
        f"/models/{first}/invoke",
        "/models",
        f"/models/{second}/invoke",
    ]
    assert Path(loads[0]["url"], "model.txt").read_text() == "a model"
