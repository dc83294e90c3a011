"""SageMaker's SDK 2 creates, asks and deletes an endpoint where AWS_ENDPOINT_URL_SAGEMAKER leads."""

import json
import sys

from sagemaker import Session, container_def
from sagemaker.tensorflow import TensorFlowModel

image, model_data = sys.argv[1:]
session = Session(default_bucket="local")  # else it asks AWS for its account
model = TensorFlowModel(
    model_data=model_data,
    role="arn:aws:iam::123456789012:role/local",
    image_uri=image,
    name="half",
    sagemaker_session=session,
)
for _ in range(2):  # it goes on with the one that is there
    session.create_model("twice", "arn:aws:iam::123456789012:role/local", container_def(image, model_data))
session.delete_model("twice")
predictor = model.deploy(initial_instance_count=1, instance_type="ml.m5.large")
answer = predictor.predict({"instances": [1.0]})
predictor.delete_model()
predictor.delete_endpoint()
left = session.sagemaker_client.list_endpoints()["Endpoints"]
print("\n" + json.dumps({"answer": answer, "left": left}), flush=True)
