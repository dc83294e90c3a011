"""A notebook's batch job on JPEG files by SageMaker's SDK 2, where AWS_ENDPOINT_URL_SAGEMAKER leads.

The SDK's class has the name of 2020, as notebooks of that time import it.
"""

import json
import sys

import sagemaker
from sagemaker.tensorflow.serving import Model

archive, input_path = sys.argv[1:]
sagemaker_session = sagemaker.Session(default_bucket="local")  # else it asks AWS for its account
bucket = sagemaker_session.default_bucket()
prefix = "sagemaker/DEMO-tf-batch-inference-jpeg-images-python-sdk"
s3_path = f"s3://{bucket}/{prefix}"
model_data = sagemaker_session.upload_data(archive, bucket, f"{prefix}/model")
model = Model(
    model_data=model_data,
    role="arn:aws:iam::123456789012:role/notebook",
    framework_version="1.13",
    sagemaker_session=sagemaker_session,
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
keys = sorted(sagemaker_session.list_s3_files(bucket, f"{prefix}/output"))
answers = {key.rpartition("/")[2]: json.loads(sagemaker_session.read_s3_file(bucket, key)) for key in keys}
print("\n" + json.dumps({"answer": answers}), flush=True)
