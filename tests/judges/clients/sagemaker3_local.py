"""The local TensorFlow mode of SageMaker's SDK 3: starts the image as it does, and asks port 8501."""

import json
import sys
import time

import docker
from sagemaker.serve.model_server.tensorflow_serving.server import LocalTensorflowServing

image, folder = sys.argv[1:]
SECONDS = 120

server = LocalTensorflowServing()
server._start_tensorflow_serving(docker.from_env(), image, folder, "", {})
deadline = time.monotonic() + SECONDS
try:
    while True:
        try:
            content = server._invoke_tensorflow_serving(
                b'{"instances": [1.0]}', "application/json", "application/json"
            )
            break
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
finally:
    server.container.remove(force=True)
print(json.dumps({"answer": json.loads(content)}))
