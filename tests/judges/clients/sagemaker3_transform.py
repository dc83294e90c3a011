"""SageMaker's SDK 3 does a batch job of TFRecords where AWS_ENDPOINT_URL_SAGEMAKER leads."""

import json
import sys

from sagemaker.core.helper.session_helper import Session
from sagemaker.core.resources import Model, TransformJob
from sagemaker.core.shapes import ContainerDefinition
from sagemaker.core.transformer import Transformer

archive, input_path = sys.argv[1:]
session = Session(default_bucket="local")  # else it asks AWS for its account
model_data = session.upload_data(archive, "local", "third/model")
Model.create(
    "third",
    primary_container=ContainerDefinition(model_data_url=model_data),
    execution_role_arn="arn:aws:iam::123456789012:role/local",
)
transformer = Transformer(
    model_name="third",
    instance_count=1,
    instance_type="ml.m5.large",
    strategy="SingleRecord",
    assemble_with="Line",
    max_concurrent_transforms=100,
    max_payload=1,
    env={"SAGEMAKER_TFS_ENABLE_BATCHING": "true"},
    output_path="s3://local/third/output",
    sagemaker_session=session,
)
transformer.transform(
    input_path, content_type="application/x-tfexample", split_type="TFRecord", job_name="third", wait=False
)
transformer.wait()
job = TransformJob.get("third")
job.wait(poll=1, logs=True)
listed = [each.transform_job_status for each in TransformJob.get_all()]
(key,) = session.list_s3_files("local", "third/output")
lines = session.read_s3_file("local", key).splitlines()
print("\n" + json.dumps({"answer": [json.loads(line) for line in lines], "listed": listed}), flush=True)
