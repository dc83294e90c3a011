"""The scripts of the archives that are served: each handler contract, and what they see and may return."""

REPORT = '''
import json
import os
import pathlib
import time

import numpy as np
import tfs_proxy


def public(thing):
    """Its names, without those of tuples and objects."""
    return sorted(name for name in dir(thing) if not name.startswith("__") and not name[1:] == "replace"
                  and (not name.startswith("_") or name in ("_fields", "_asdict", "_replace")))


def report(context):
    """What a script sees of a request, as JSON can say it."""
    values = context._asdict()
    return {
        "fields": list(context._fields),
        "tuple": [str(value) for value in context][:3] + [len(context), context[2]],
        "values": {name: value for name, value in values.items() if name not in ("channel", "rest_uri", "grpc_port")},
        "types": {name: type(value).__name__ for name, value in values.items() if name != "channel"},
        "replaced": context._replace(method="classify").method,
        "headers": {name: context.headers.get(name) for name in ("X-Own", "x-own", "Content-Type")},
        "inference_id": context.inference_id,
        "request_id": context.request_id,
        "inputs": {name: [spec.dtype, list(spec.shape)] for name, spec in context.signature.inputs.items()},
        "models": {name: list(versions) for name, versions in context.models.items()},
        "word": pathlib.Path(context.model_dir, "words.txt").read_text(),
    }
'''

HALVES = (
    REPORT
    + """
import grpc
import requests
import signal


def input_handler(data, context):
    kind = context.request_content_type
    if kind == "text/x-report":
        text = data.read().decode()
        context.logger.warning("a line of the script")
        context.set_custom_attributes({"seen": "yes"})
        x = np.array([2.0], np.float32)
        found = report(context)
        found["predict"] = context.predict({"x": x})["y"].tolist()
        found["uri"] = requests.post(context.rest_uri, data=text, timeout=30).json()
        grpc.channel_ready_future(context.channel).result(30)
        with grpc.insecure_channel("localhost:" + context.grpc_port) as own:
            grpc.channel_ready_future(own).result(30)
        raise Told(json.dumps(found))
    if kind == "text/x-array":
        return np.array(data.read().split(), np.float32)
    if kind == "text/x-mapping":
        return {"x": [float(word) for word in data.read().split()]}
    if kind == "text/x-request":
        return tfs_proxy.Request({"x": np.array(data.read().split(), np.float32)}, version=1)
    if context.accept_header == "text/x-default":
        return context.default_input(data)
    if kind == "text/x-raise":
        raise KeyError("customer_id")
    if kind == "text/x-refuse":
        raise tfs_proxy.HTTPError(422, "send something else")
    if kind == "text/x-die":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "text/x-hang":
        time.sleep(600)
    return data.read().decode()


class Told(tfs_proxy.HTTPError):
    def __init__(self, text):
        super().__init__(499, text)


def output_handler(response, context):
    if context.accept_header == "text/x-unsendable":
        return object()
    if context.accept_header == "text/x-response":
        lost = tfs_proxy.Response(str(response.outputs["y"].tolist()), "text/plain", 203, {"X-Kind": "own"})
        return lost
    if context.accept_header == "text/x-seen":
        isinstance_of_requests = isinstance(response, requests.Response)
        seen = {"status": response.status_code, "ok": response.ok, "json": response.json(), "text": response.text,
                "content": response.content.decode(), "outputs": response.outputs["y"].tolist(),
                "type": response.headers["content-type"], "requests": isinstance_of_requests, "raw": response.raw.read(1).decode()}
        return json.dumps(seen), "application/json"
    if context.accept_header == "application/x-npy":
        return context.default_output(response)
    return response.content, context.accept_header
"""
)

HANDLER = (
    REPORT
    + """
def init(context):
    global AT_INIT
    AT_INIT = context.predict({"x": np.array([4.0], np.float32)})["y"].tolist()


async def handler(data, context):
    outputs = await context.predict_async({"x": np.array([2.0], np.float32)})
    found = {**report(context), "init": AT_INIT, "outputs": outputs["y"].tolist()}
    return [json.dumps(found), "application/json"]
"""
)

STREAM = """
def handler(data, context):
    def parts():
        for word in data.read().split():
            yield word + b"\\n"
            if word == b"break":
                raise ValueError("in the middle")

    return parts(), "text/plain"
"""

ECHO = """
import json
import os
import time

import tfs_proxy


def handler(data, context):
    body = data.read()
    if context.request_content_type == "application/octet-stream":
        return str(len(body)), "text/plain"
    try:
        request = dict(json.loads(body))
    except (TypeError, ValueError) as error:
        raise tfs_proxy.HTTPError(400, f"it is no JSON object: {error}") from None
    time.sleep(request.get("seconds", 0))
    if "parts" in request:
        return parts(request["parts"]), "text/plain"
    answer = os.environ[request["variable"]] if "variable" in request else json.dumps(request)
    return answer, context.accept_header


def parts(count):
    for number in range(count):
        yield b"%d\\n" % number
        time.sleep(0.2)
"""

SCRIPT_MODEL = """
def model_fn(model_dir):
    return lambda rows: rows * 2


def predict_fn(data, model, context):
    context.set_custom_attributes("doubled=yes")
    return model(data)
"""
