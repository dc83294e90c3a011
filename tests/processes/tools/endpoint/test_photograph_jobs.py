"""A batch job of a notebook that boto3 creates at `tfs-proxy endpoint`: objects in S3, photographs, a script."""

from contextlib import closing
from pathlib import Path

import boto3
import pytest

from support.endpoints import ROLE, Endpoint
from support.photographs import photograph_archive, photographs, shade
from support.transform_command import S3_SETTINGS, s3_server
from support.transform_jobs import ended_job

COUNT = 200
IMAGE = "763104351884.dkr.ecr.us-west-2.amazonaws.com/tensorflow-inference:2.19-gpu"


@pytest.mark.tensorflow
def test_a_job_on_jpeg_files(saved_models: Path, tmp_path: Path) -> None:
    """Each object in its own request, 64 at once, and an `.out` for each that the notebook reads as JSON."""
    archive = photograph_archive(tmp_path / "model.tar.gz", saved_models, "resnet50_jpeg")
    with s3_server() as address:
        s3 = boto3.Session("test", "test", region_name="us-east-1").client("s3", endpoint_url=address)
        s3.create_bucket(Bucket="bucket")
        s3.upload_file(str(archive), "bucket", "jpeg/model.tar.gz")
        for number, picture in enumerate(photographs(COUNT)):
            s3.put_object(Bucket="bucket", Key=f"jpg/{number:03}.jpg", Body=picture)
        settings = {**S3_SETTINGS, "AWS_ENDPOINT_URL_S3": address, "SAGEMAKER_GUNICORN_WORKERS": "1"}
        with closing(Endpoint(env=settings)) as endpoint:
            endpoint.wait_ready()
            container = {"Image": IMAGE, "ModelDataUrl": "s3://bucket/jpeg/model.tar.gz"}
            endpoint.control_plane.create_model(
                ModelName="jpeg", PrimaryContainer=container, ExecutionRoleArn=ROLE
            )
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
        keys = [
            each["Key"] for each in s3.list_objects_v2(Bucket="bucket", Prefix="jpeg/output/")["Contents"]
        ]
        assert keys == [f"jpeg/output/{number:03}.jpg.out" for number in range(COUNT)]
        answers = [s3.get_object(Bucket="bucket", Key=key)["Body"].read() for key in keys]
        assert [shade(answer) for answer in answers] == list(range(COUNT))
