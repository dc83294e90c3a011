"""SageMaker's SDKs and the AWS CLI, unchanged, run batch jobs at `tfs-proxy endpoint`, and print their logs."""

import io
import json
import runpy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest
from PIL import Image

from support.archives import pack
from support.building import EXAMPLES
from support.endpoints import Endpoint
from support.judges import CLIENTS, judge
from support.transform_command import S3_SETTINGS, s3_server
from support.waiting import wait_until
from tfs_proxy.data.formats.framing import tfrecord_frame

COUNT, SHADES = 200, 256
SECONDS = 90.0
pytestmark = [pytest.mark.tensorflow, pytest.mark.long]


def photographs(count: int) -> list[bytes]:
    """One JPEG file of each shade of grey, from black to white and over again."""
    return [_jpeg(number % SHADES) for number in range(count)]


def _jpeg(shade: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (24, 16), (shade, shade, shade)).save(file, "JPEG", quality=95)
    return file.getvalue()


def records(pictures: Sequence[bytes]) -> bytes:
    """A TFRecord file of one tf.Example (`image/encoded`) for each picture."""
    example = runpy.run_path(str(EXAMPLES / "resnet50_tfrecord" / "pack.py"))["example"]
    return b"".join(tfrecord_frame(example(picture)) for picture in pictures)


def photograph_archive(target: Path, saved_models: Path, example: str) -> Path:
    """The model `picture`, which answers with the mean of each picture, and an example's script."""
    script = (EXAMPLES / example / "inference.py").read_text()
    return pack(target, {"code/inference.py": script}, {"picture": saved_models / "picture"})


def shade(answer: bytes | str) -> int:
    """The shade of grey that a prediction of the model `picture` says."""
    (prediction,) = json.loads(answer)["predictions"]
    mean = prediction["mean"] if isinstance(prediction, dict) else prediction
    return round(float(mean) * (SHADES - 1))


def s3_at(address: str) -> Any:
    session = boto3.Session("test", "test", region_name="us-east-1")
    return session.client("s3", endpoint_url=address)


@pytest.fixture(scope="module")
def aws() -> Iterator[Mapping[str, str]]:
    """The environment of clients: SageMaker and CloudWatch are ours, S3 is moto's."""
    with s3_server() as address:
        settings = {**S3_SETTINGS, "AWS_ENDPOINT_URL_S3": address}
        with closing(Endpoint(env={**settings, "SAGEMAKER_GUNICORN_WORKERS": "1"})) as endpoint:
            endpoint.wait_ready()
            ours = f"http://{endpoint.host}:{endpoint.port}"
            s3_at(address).create_bucket(Bucket="local")
            yield {
                **settings,
                "AWS_ENDPOINT_URL_SAGEMAKER": ours,
                "AWS_ENDPOINT_URL_CLOUDWATCH_LOGS": ours,
            }


def put(aws: Mapping[str, str], key: str, body: bytes) -> None:
    s3_at(aws["AWS_ENDPOINT_URL_S3"]).put_object(Bucket="local", Key=key, Body=body)


def test_sdk_2_does_a_job_on_jpeg_files(aws: Mapping[str, str], saved_models: Path, tmp_path: Path) -> None:
    """With `wait()`, which prints the containers' log by CloudWatch's calls."""
    archive = photograph_archive(tmp_path / "model.tar.gz", saved_models, "resnet50_jpeg")
    for number, picture in enumerate(photographs(COUNT)):
        put(aws, f"jpg/{number:03}.jpg", picture)

    printed = judge("sagemaker2").run(
        "python", CLIENTS / "sagemaker2_transform.py", archive, "s3://local/jpg", env=aws
    )

    seen = json.loads(printed.splitlines()[-1])["answer"]
    assert list(seen) == [f"{number:03}.jpg.out" for number in range(COUNT)]
    assert [shade(json.dumps(answer)) for answer in seen.values()] == list(range(COUNT))
    assert "ready" in printed


def test_sdk_3_does_a_job_on_tfrecords(aws: Mapping[str, str], saved_models: Path, tmp_path: Path) -> None:
    archive = photograph_archive(tmp_path / "model.tar.gz", saved_models, "resnet50_tfrecord")
    put(aws, "records/all", records(photographs(COUNT)))

    printed = judge("sagemaker3").run(
        "python", CLIENTS / "sagemaker3_transform.py", archive, "s3://local/records", env=aws
    )

    seen = json.loads(printed.splitlines()[-1])
    assert [shade(json.dumps(answer)) for answer in seen["answer"]] == list(range(COUNT))
    assert "Completed" in seen["listed"]


def test_aws_cli_creates_waits_for_and_lists_a_job(
    aws: Mapping[str, str], saved_models: Path, tmp_path: Path
) -> None:
    """By the commands of a notebook, from the upload to the download of a result."""
    archive = photograph_archive(tmp_path / "model.tar.gz", saved_models, "resnet50_jpeg")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jpg").write_bytes(photographs(1)[0])
    asked = {
        "TransformJobName": "cli",
        "ModelName": "cli",
        "TransformInput": {
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://local/cli/in"}},
            "ContentType": "application/x-image",
        },
        "TransformOutput": {"S3OutputPath": "s3://local/cli/out"},
        "TransformResources": {"InstanceType": "ml.p3.2xlarge", "InstanceCount": 2},
    }
    (tmp_path / "job.json").write_text(json.dumps(asked))
    cli = partial(judge("awscli").run, "aws", env=aws)
    cli("s3", "cp", archive, "s3://local/cli/model.tar.gz")
    cli("s3", "sync", tmp_path / "in", "s3://local/cli/in")
    container = "Image=tensorflow-inference,ModelDataUrl=s3://local/cli/model.tar.gz"
    cli("sagemaker", "create-model", "--model-name", "cli", "--primary-container", container)

    cli("sagemaker", "create-transform-job", "--cli-input-json", f"file://{tmp_path / 'job.json'}")

    def status() -> str:
        words = ("describe-transform-job", "--transform-job-name", "cli", "--output", "text", "--query")
        return cli("sagemaker", *words, "TransformJobStatus").strip()

    wait_until(lambda: status() != "InProgress", SECONDS, "the job has ended")
    assert status() == "Completed"
    cli("sagemaker", "wait", "transform-job-completed-or-stopped", "--transform-job-name", "cli")
    listed = json.loads(cli("sagemaker", "list-transform-jobs", "--status-equals", "Completed"))
    assert "cli" in [each["TransformJobName"] for each in listed["TransformJobSummaries"]]
    assert "a.jpg.out" in cli("s3", "ls", "s3://local/cli/out/")
    assert shade(cli("s3", "cp", "s3://local/cli/out/a.jpg.out", "-")) == 0
