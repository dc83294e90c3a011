"""A stand-in for tensorflow_model_server with one model, y = x / 2 + 3, whose metadata has no tensor_shape.

It takes the flags that the supervisor gives, and answers as TensorFlow Serving does for AWS's sample
half_plus_three: predict over REST and gRPC for arrays of any rank, regress and classify over REST.
"""

import http.server
import json
import os
import re
import signal
import sys
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from tfs_proxy.wire.protos import PredictRequest
from tfs_proxy.wire.protos.predict import model_spec, response_bytes
from tfs_proxy.wire.protos.tensors import to_array

FLAGS = dict(word.removeprefix("--").partition("=")[::2] for word in sys.argv[1:])
CONFIG = Path(FLAGS["model_config_file"]).read_text()
(NAME,) = re.findall(r'name: "([^"]*)"', CONFIG)
(VERSION,) = map(int, re.findall(r"versions: (\d+)", CONFIG))


def tensor(name: str) -> dict[str, str]:
    """A TensorInfo as JSON, without a shape."""
    return {"dtype": "DT_FLOAT", "name": name}


def signature(method: str, inputs: str, outputs: str) -> dict[str, Any]:
    """A SignatureDef as JSON, of one input and one output."""
    return {
        "inputs": {inputs: tensor("x:0" if method == "predict" else "tf_example:0")},
        "outputs": {outputs: tensor("y:0")},
        "method_name": f"tensorflow/serving/{method}",
    }


SIGNATURES = {
    "serving_default": signature("predict", "x", "y"),
    "tensorflow/serving/regress": signature("regress", "inputs", "outputs"),
    "regress_x_to_y": signature("regress", "inputs", "outputs"),
    "classify_x_to_y": signature("classify", "inputs", "scores"),
}
METADATA = {
    "model_spec": {"name": NAME, "signature_name": "", "version": str(VERSION)},
    "metadata": {"signature_def": {"signature_def": SIGNATURES}},
}
STATUS = {
    "model_version_status": [
        {"version": str(VERSION), "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    ]
}


def half_plus_three(x: Any) -> Any:
    """The model, for an array of any shape."""
    return np.asarray(x, np.float32) / 2 + 3


def rows(instances: list[Any]) -> list[Any]:
    """Predictions for rows, each a value or an object that names the input."""
    found = half_plus_three([row["x"] if type(row) is dict else row for row in instances]).tolist()
    assert type(found) is list
    return found


def results(examples: list[dict[str, Any]]) -> list[float]:
    """Regressions of tf.Examples as JSON."""
    return [float(half_plus_three(np.ravel(example["x"])[0])) for example in examples]


class Rest(http.server.BaseHTTPRequestHandler):
    """Status and metadata for GET; predict, regress and classify for POST."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer(METADATA if self.path.endswith("/metadata") else STATUS)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method = self.path.rpartition(":")[2]
        if method == "predict" and "inputs" in asked:
            self.answer({"outputs": half_plus_three(asked["inputs"]).tolist()})
        elif method == "predict":
            self.answer({"predictions": rows(asked["instances"])})
        elif method == "regress":
            self.answer({"results": results(asked["examples"])})
        else:
            self.answer({"results": [[["", score]] for score in results(asked["examples"])]})

    def answer(self, document: object) -> None:
        text = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


def predict(message: bytes, _context: object) -> bytes:
    """PredictionService.Predict."""
    request = PredictRequest.FromString(message)
    y = half_plus_three(to_array(request.inputs["x"]))
    return response_bytes(model_spec(NAME, VERSION), {"y": y})


def main() -> None:
    """Serve until killed."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    methods = {"Predict": grpc.unary_unary_rpc_method_handler(predict)}
    binary = grpc.server(futures.ThreadPoolExecutor(4))
    binary.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("tensorflow.serving.PredictionService", methods),)
    )
    binary.add_insecure_port(f"unix:{FLAGS['grpc_socket_path']}")
    binary.start()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(FLAGS["rest_api_port"])), Rest)
    server.daemon_threads = True
    server.serve_forever()


main()
