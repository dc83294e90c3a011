"""The baseline proxy: falcon, one gunicorn gevent worker and `requests.post` per request.

It does what AWS's container does with a script; `serving.py` compares it with this project. The request's
Content-Type selects the script's work: pass JSON on, wrap a JPEG in base64, or make JSON of floats.
"""

import base64
import json
import os

import falcon
import numpy as np
import requests

REST = os.environ["BASELINE_REST"]


class Invocations:
    """The resource for all three kinds of script."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Convert the body, call the model server and pass its answer on."""
        data = req.stream.read()
        if req.content_type == "image/jpeg":
            model, body = "jpeg", json.dumps({"instances": [{"b64": base64.b64encode(data).decode()}]})
        elif req.content_type == "application/octet-stream":
            image = np.frombuffer(data, np.float32).reshape(1, 224, 224, 3)
            model, body = "f224", json.dumps({"instances": image.tolist()})
        else:
            model, body = req.get_header("X-Model") or "tiny", data.decode()
        reply = requests.post(f"{REST}/v1/models/{model}:predict", data=body, timeout=60)
        resp.status, resp.data, resp.content_type = reply.status_code, reply.content, "application/json"


app = falcon.App()
app.add_route("/invocations", Invocations())
