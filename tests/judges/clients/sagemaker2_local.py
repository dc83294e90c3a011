"""Local mode of SageMaker's SDK 2: an endpoint, and a transform job, with an image of ours."""

import json
import pathlib
import sys

import boto3
from sagemaker.local import LocalSession
from sagemaker.tensorflow import TensorFlowModel

image, archive, work = sys.argv[1:]
boto_session = boto3.Session("any", "any", region_name="us-east-1")
boto_session.client("s3").create_bucket(Bucket="local")
session = LocalSession(boto_session=boto_session, default_bucket="local")  # else it asks AWS for its account
session.config = {"local": {"local_code": True, "container_root": work}}
model = TensorFlowModel(
    model_data=f"file://{archive}",
    role="arn:aws:iam::123456789012:role/local",
    image_uri=image,
    sagemaker_session=session,
)
predictor = model.deploy(initial_instance_count=1, instance_type="local")
try:
    answer = predictor.predict({"instances": [1.0]})
finally:
    predictor.delete_endpoint()

rows, out = pathlib.Path(work, "rows"), pathlib.Path(work, "out")
rows.mkdir()
out.mkdir()
(rows / "rows.csv").write_text("1.0\n2.0\n")
transformer = model.transformer(
    instance_count=1,
    instance_type="local",
    output_path=f"file://{out}",
    strategy="MultiRecord",
    assemble_with="Line",
)
transformer.transform(f"file://{rows}", content_type="text/csv", split_type="Line")
transformer.wait()
written = {path.name: path.read_text() for path in out.rglob("*") if path.is_file()}
print("\n" + json.dumps({"answer": answer, "transformed": written}), flush=True)
