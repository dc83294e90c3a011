"""The JSON schemas of files: an editor says of a file what the command says."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from support.loading import load_script
from tfs_proxy.tools.endpoint.run import catalogue_of
from tfs_proxy.transform.job import read_description
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.layout import ANYWHERE

FOLDER = Path(__file__).parents[3] / "src" / "tfs_proxy" / "schemas"
READERS: Mapping[str, Callable[[Path], object]] = {
    "transform-job": read_description,
    "endpoint": lambda path: catalogue_of([path], ANYWHERE),
}
JOB: Mapping[str, Any] = {
    "TransformJobName": "job",
    "ModelName": "model",
    "TransformInput": {"DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://b/in"}}},
    "TransformOutput": {"S3OutputPath": "s3://b/out"},
    "TransformResources": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
}
ENDPOINT: Mapping[str, Any] = {
    "CreateModel": [{"ModelName": "m", "PrimaryContainer": {"ModelDataUrl": "model.tar.gz"}}],
    "CreateEndpointConfig": {
        "EndpointConfigName": "c",
        "ProductionVariants": [
            {"VariantName": "v", "ModelName": "m", "InstanceType": "ml.m5.large", "InitialInstanceCount": 1}
        ],
    },
    "CreateEndpoint": {"EndpointName": "e", "EndpointConfigName": "c"},
}
SAMPLES: tuple[tuple[str, object, bool], ...] = (
    ("transform-job", JOB, True),
    ("transform-job", {**JOB, "BatchStrategy": "SingleRecord", "Environment": {"A": "b"}}, True),
    ("transform-job", {**JOB, "MaxPayloadInMB": -1}, False),
    ("transform-job", {**JOB, "MaxPayloadInMB": "6"}, False),
    ("transform-job", {**JOB, "Nonsense": 1}, False),
    ("transform-job", {**JOB, "Environment": {"A": 1}}, False),
    ("transform-job", {key: JOB[key] for key in JOB if key != "TransformOutput"}, False),
    ("transform-job", [], False),
    ("endpoint", ENDPOINT, True),
    ("endpoint", {**ENDPOINT, "CreateEndpoint": [ENDPOINT["CreateEndpoint"]]}, True),
    ("endpoint", {**ENDPOINT, "CreateTransformJob": {**JOB, "ModelName": "m"}}, True),
    ("endpoint", {**ENDPOINT, "CreateModel": [{"Name": "m"}]}, False),
    ("endpoint", {**ENDPOINT, "CreateEndpoint": {"EndpointName": "e"}}, False),
    ("endpoint", {**ENDPOINT, "DeleteModel": {}}, False),
    ("endpoint", {}, False),
)


@pytest.mark.parametrize(("name", "document", "valid"), SAMPLES)
def test_the_schema_and_the_command_agree(name: str, document: object, valid: bool, tmp_path: Path) -> None:
    schema = json.loads((FOLDER / f"{name}.json").read_text())
    Draft202012Validator.check_schema(schema)
    file = tmp_path / "file.json"
    file.write_text(json.dumps(document))

    assert Draft202012Validator(schema).is_valid(document) == valid
    try:
        READERS[name](file)
    except SettingsError:
        assert not valid
    else:
        assert valid


def test_the_files_are_those_of_the_script() -> None:
    """`make schemas` writes them."""
    written = load_script("json_schemas").schemas()

    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == written
