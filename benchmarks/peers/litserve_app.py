"""Serves one SavedModel by LitServe, in the way of its documentation: python litserve_app.py MODEL PORT."""

import sys

import litserve
import tensorflow as tf


class Api(litserve.LitAPI):
    def setup(self, device):
        self.loaded = tf.saved_model.load(sys.argv[1])
        self.model = self.loaded.signatures["serving_default"]

    def decode_request(self, request):
        if "image" in request:
            return tf.constant([request["image"].file.read()])
        return tf.constant(request["instances"], tf.float32)

    def predict(self, x):
        return self.model(x)["y"]

    def encode_response(self, output):
        return {"predictions": output.numpy().tolist()}


if __name__ == "__main__":
    litserve.LitServer(Api(), accelerator="auto").run(port=int(sys.argv[2]), generate_client_file=False)
