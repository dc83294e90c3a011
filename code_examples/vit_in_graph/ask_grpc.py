"""Ask the model through TensorFlow Serving's gRPC API, with its own client library.

python ask_grpc.py localhost:8500 build/flower.jpg
"""

import base64
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

address, picture = sys.argv[1:]
b64str = base64.urlsafe_b64encode(Path(picture).read_bytes()).decode("utf-8")

channel = grpc.insecure_channel(address)
stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

request = predict_pb2.PredictRequest()
request.model_spec.name = "vit"
request.model_spec.signature_name = "serving_default"
request.inputs["string_input"].CopyFrom(tf.make_tensor_proto([b64str]))

try:
    answer = stub.Predict(request, 10.0)
except grpc.RpcError as error:
    sys.exit(f"{error.code().name}: {error.details()}")
print(answer.outputs["label"].string_val, answer.outputs["confidence"].float_val)
