"""SageMaker's SDK 2 does a notebook's batch job on JPEG files where AWS_ENDPOINT_URL_SAGEMAKER leads."""

import json
import sys

from sagemaker import Session
from sagemaker.tensorflow import TensorFlowModel

archive, input_path = sys.argv[1:]
session = Session(default_bucket="local")  # else it asks AWS for its account
s3_path = "s3://local/notebook"
model_data = session.upload_data(archive, "local", "notebook/model")
model = TensorFlowModel(
    model_data=model_data,
    role="arn:aws:iam::123456789012:role/local",
    framework_version="2.19",
    sagemaker_session=session,
)
output_path = f"{s3_path}/output"
transformer = model.transformer(
    instance_count=2,
    instance_type="ml.p3.2xlarge",
    max_concurrent_transforms=64,
    max_payload=1,
    output_path=output_path,
)
transformer.transform(input_path, content_type="application/x-image", wait=False)
transformer.wait()
keys = sorted(session.list_s3_files("local", "notebook/output"))
answers = {key: json.loads(session.read_s3_file("local", key)) for key in keys}
print("\n" + json.dumps({"answer": answers}), flush=True)
