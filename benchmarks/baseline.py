"""The plainest honest proxy: falcon, one gevent worker, `requests.post` per request, as the peer has it.

It stands for the way that AWS's container takes with a script; `serving.py` runs it beside ours. The
request's type says what a script would do: pass JSON on, wrap a JPEG in base64, or make JSON of floats.
"""

import base64
import json
import os

import falcon
import numpy as np
import requests

REST = os.environ["BASELINE_REST"]


class Invocations:
    """One resource for all three kinds of script."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Transform, ask the model server, answer."""
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
