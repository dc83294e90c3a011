"""Batch jobs of notebooks that boto3 creates at `tfs-proxy endpoint`: objects in S3, photographs, a script."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from support.endpoints import Endpoint
from support.photographs import photograph_archive, photographs, records, shade
from support.transform_command import S3_SETTINGS, s3_server
from support.transform_jobs import ended_job

COUNT = 200
pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture(scope="module")
def s3(address: str) -> Any:
    client = boto3.Session("test", "test", region_name="us-east-1").client("s3", endpoint_url=address)
    client.create_bucket(Bucket="bucket")
    return client


@pytest.fixture(scope="module")
def endpoint(address: str) -> Iterator[Endpoint]:
    running = Endpoint(env={**S3_SETTINGS, "AWS_ENDPOINT_URL_S3": address, "SAGEMAKER_GUNICORN_WORKERS": "1"})
    try:
        running.wait_ready()
        yield running
    finally:
        running.close()


def create_model(endpoint: Endpoint, s3: Any, name: str, archive: Path) -> None:
    s3.upload_file(str(archive), "bucket", f"{name}/model.tar.gz")
    image = "763104351884.dkr.ecr.us-west-2.amazonaws.com/tensorflow-inference:2.19-gpu"
    endpoint.control_plane.create_model(
        ModelName=name,
        PrimaryContainer={"Image": image, "ModelDataUrl": f"s3://bucket/{name}/model.tar.gz"},
        ExecutionRoleArn="arn:aws:iam::123456789012:role/batch",
    )


def test_a_job_on_jpeg_files(endpoint: Endpoint, s3: Any, saved_models: Path, tmp_path: Path) -> None:
    """Each object in its own request, 64 at once, and an `.out` for each that the notebook reads as JSON."""
    archive = photograph_archive(tmp_path / "model.tar.gz", saved_models, "resnet50_jpeg")
    create_model(endpoint, s3, "jpeg", archive)
    for number, picture in enumerate(photographs(COUNT)):
        s3.put_object(Bucket="bucket", Key=f"jpg/{number:03}.jpg", Body=picture)

    endpoint.control_plane.create_transform_job(
        TransformJobName="jpeg",
        ModelName="jpeg",
        MaxConcurrentTransforms=64,
        MaxPayloadInMB=1,
        TransformInput={
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/jpg"}},
            "ContentType": "application/x-image",
        },
        TransformOutput={"S3OutputPath": "s3://bucket/jpeg/output"},
        TransformResources={"InstanceType": "ml.p3.2xlarge", "InstanceCount": 2},
    )

    assert ended_job(endpoint, "jpeg")["TransformJobStatus"] == "Completed", endpoint.log
    keys = [each["Key"] for each in s3.list_objects_v2(Bucket="bucket", Prefix="jpeg/output/")["Contents"]]
    assert keys == [f"jpeg/output/{number:03}.jpg.out" for number in range(COUNT)]
    answers = [s3.get_object(Bucket="bucket", Key=key)["Body"].read() for key in keys]
    assert [shade(answer) for answer in answers] == list(range(COUNT))


def test_a_job_on_tfrecords(endpoint: Endpoint, s3: Any, saved_models: Path, tmp_path: Path) -> None:
    """SingleRecord sends each tf.Example alone, Line makes each answer a line, in the order of the input."""
    archive = photograph_archive(tmp_path / "model.tar.gz", saved_models, "resnet50_tfrecord")
    create_model(endpoint, s3, "tfrecord", archive)
    for name, pictures in (("a", photographs(COUNT)), ("b", photographs(COUNT // 2))):
        s3.put_object(Bucket="bucket", Key=f"records/{name}", Body=records(pictures))

    endpoint.control_plane.create_transform_job(
        TransformJobName="tfrecord",
        ModelName="tfrecord",
        MaxConcurrentTransforms=100,
        MaxPayloadInMB=1,
        BatchStrategy="SingleRecord",
        Environment={"SAGEMAKER_TFS_ENABLE_BATCHING": "true", "SAGEMAKER_TFS_BATCH_TIMEOUT_MICROS": "50000"},
        TransformInput={
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/records/"}},
            "ContentType": "application/x-tfexample",
            "SplitType": "TFRecord",
        },
        TransformOutput={"S3OutputPath": "s3://bucket/out", "AssembleWith": "Line"},
        TransformResources={"InstanceType": "ml.p3.2xlarge", "InstanceCount": 2},
    )

    assert ended_job(endpoint, "tfrecord")["TransformJobStatus"] == "Completed", endpoint.log
    for name, count in (("a", COUNT), ("b", COUNT // 2)):
        lines = s3.get_object(Bucket="bucket", Key=f"out/{name}.out")["Body"].read().splitlines()
        assert [shade(line) for line in lines] == list(range(count))
