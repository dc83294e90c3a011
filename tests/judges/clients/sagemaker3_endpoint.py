"""SageMaker's SDK 3 creates, asks and deletes an endpoint where AWS_ENDPOINT_URL_SAGEMAKER leads."""

import json
import sys

from sagemaker.core.resources import Endpoint, EndpointConfig, Model
from sagemaker.core.shapes import ContainerDefinition, ProductionVariant

image, model_data = sys.argv[1:]
container = ContainerDefinition(image=image, model_data_url=model_data)
Model.create("half", primary_container=container, execution_role_arn="arn:aws:iam::123456789012:role/local")
variant = ProductionVariant(
    variant_name="all", model_name="half", initial_instance_count=1, instance_type="ml.m5.large"
)
EndpointConfig.create("first", production_variants=[variant])
endpoint = Endpoint.create("shop", "first")
endpoint.wait_for_status("InService", poll=1)
answer = endpoint.invoke(body=b'{"instances": [1.0]}', content_type="application/json").body.read()
endpoint.delete()
left = [each.endpoint_name for each in Endpoint.get_all()]
print("\n" + json.dumps({"answer": json.loads(answer), "left": left}), flush=True)
