"""Requests to AWS's control plane: what AWS would refuse is refused with AWS's member name."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.endpoints import variant
from tfs_proxy.tools.endpoint.catalogue import Catalogue
from tfs_proxy.tools.endpoint.operations import OperationRequest
from tfs_proxy.tools.endpoint.run import catalogue_of
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.layout import ANYWHERE

VARIANT = variant("v", "m")
MODEL: dict[str, Any] = {"ModelName": "m", "PrimaryContainer": {"Image": "image", "ModelDataUrl": "a.tar.gz"}}
CONFIG: dict[str, Any] = {"EndpointConfigName": "c", "ProductionVariants": [VARIANT]}
ENDPOINT = {"EndpointName": "e", "EndpointConfigName": "c"}


def written(folder: Path, content: object, name: str = "config.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(content))
    return path


def created(*requests: tuple[str, dict[str, Any]]) -> Catalogue:
    catalogue = Catalogue(ANYWHERE)
    for operation, parameters in requests:
        catalogue.create(OperationRequest(operation, parameters, operation, Path("/configs")))
    return catalogue


def test_one_file_or_a_file_for_each_request_describe_the_same(tmp_path: Path) -> None:
    """An object by operation, with one request or a list; or bare requests, in any order."""
    keyed = {"CreateModel": [MODEL], "CreateEndpointConfig": CONFIG, "CreateEndpoint": ENDPOINT}
    together = catalogue_of([written(tmp_path, keyed)], ANYWHERE)
    parts = [
        written(tmp_path, part, f"{number}.json") for number, part in enumerate((ENDPOINT, CONFIG, MODEL))
    ]

    apart = catalogue_of(parts, ANYWHERE)

    assert together.models == apart.models
    assert (together.configs, together.endpoints) == (apart.configs, apart.endpoints)
    assert together.endpoints == {"e": "c"}


@pytest.mark.parametrize(
    ("address", "location"),
    [
        ("a.tar.gz", "/configs/a.tar.gz"),
        ("../b/", "/configs/../b"),
        ("file:///models/a%20b.tar.gz", "/models/a b.tar.gz"),
        ("s3://bucket/a.tar.gz", "s3://bucket/a.tar.gz"),
    ],
)
def test_model_data_may_be_a_path_that_starts_from_the_file(address: str, location: str) -> None:
    model = {"ModelName": "m", "PrimaryContainer": {"ModelDataUrl": address}}

    (container,) = created(("CreateModel", model)).models["m"].containers

    assert container.archive == location


def test_containers_of_a_pipeline_have_names_by_their_place() -> None:
    model = {"ModelName": "m", "Containers": [{"Image": "a"}, {"Image": "b"}]}

    containers = created(("CreateModel", model)).models["m"].containers

    assert [container.name for container in containers] == ["container1", "container2"]


@pytest.mark.parametrize(
    ("operation", "parameters", "names"),
    [
        *(
            ("CreateModel", {"ModelName": "m", **parameters}, names)
            for parameters, names in (
                ({"ModelName": "a_b", "PrimaryContainer": {}}, "ModelName is 'a_b'"),
                ({}, "PrimaryContainer or Containers"),
                ({"PrimaryContainer": {"Img": "x"}}, 'PrimaryContainer: "Img"'),
                ({"PrimaryContainer": {"Environment": {"a": "b" * 1025}}}, "Environment.a has 1025"),
                ({"Containers": [{"ContainerHostname": "a"}] * 2}, "ContainerHostname twice"),
                (
                    {"Containers": [{}, {}], "InferenceExecutionConfig": {"Mode": "Direct"}},
                    "InferenceExecutionConfig.Mode Direct",
                ),
                ({"PrimaryContainer": {"ModelDataUrl": "https://a/b"}}, "https://a/b"),
            )
        ),
        *(
            ("CreateEndpointConfig", {**CONFIG, "ProductionVariants": variants}, names)
            for variants, names in (
                ([VARIANT, VARIANT], r"ProductionVariants\[1\].VariantName v is there twice"),
                (
                    [{**VARIANT, "ModelName": "other"}],
                    r"ProductionVariants\[0\].ModelName other is unknown",
                ),
                ([{**VARIANT, "InitialInstanceCount": 100_000}], "for which this machine has memory"),
            )
        ),
        (
            "CreateEndpointConfig",
            {**CONFIG, "AsyncInferenceConfig": {"OutputConfig": {}}},
            r"AsyncInferenceConfig\.OutputConfig\.S3OutputPath is missing",
        ),
        ("CreateEndpoint", {**ENDPOINT, "EndpointConfigName": "d"}, "EndpointConfigName d is unknown"),
    ],
)
def test_what_aws_refuses_is_refused(operation: str, parameters: dict[str, Any], names: str) -> None:
    before = [] if operation == "CreateModel" else [("CreateModel", MODEL)]

    with pytest.raises(SettingsError, match=names):
        created(*before, (operation, parameters))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([], "JSON object"),
        ({"CreateModel": [1]}, r"CreateModel\[0\] must be an object"),
        ({"CreateModel": MODEL, "DeleteModel": {}}, "DeleteModel"),
        ({"Name": "x"}, "neither an operation"),
        ("{", r"config\.json is not JSON"),
        (None, r"config\.json can't be read"),
    ],
)
def test_file_without_requests_is_refused(content: object, says: str, tmp_path: Path) -> None:
    """The text of a file, or its content; None is a file that is not there."""
    if content is not None:
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(SettingsError, match=says):
        catalogue_of([tmp_path / "config.json"], ANYWHERE)
