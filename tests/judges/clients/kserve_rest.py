"""Calls each method of kserve's REST client, in both of its protocols; prints what it got as one line of JSON."""

import asyncio
import json
import sys

import httpx
import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest
from kserve.inference_client import RESTConfig

BATCH = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)
FACTORS = np.array([1, 20], np.int64)
TEXTS = np.array([b"\x00\n", b"", "ä".encode()], np.object_)  # it makes text of all bytes that it gets
HALVES = np.array([1.5, -0.0], np.float16)


def request(model, binary, parameters=None, **arrays):
    """An InferRequest of arrays; a name's datatype is that of its array."""
    names = {"float32": "FP32", "int64": "INT64", "float16": "FP16", "object": "BYTES"}
    inputs = []
    for name, array in arrays.items():
        inputs.append(InferInput(name, list(array.shape), names[array.dtype.name]))
        inputs[-1].set_data_from_numpy(array, binary_data=binary)
    return InferRequest(model, inputs, request_id="from-kserve", parameters=parameters)


def shown(response):
    outputs = {
        output.name: {
            "datatype": output.datatype,
            "shape": output.shape,
            "values": [
                value.hex() if isinstance(value, bytes) else value
                for value in output.as_numpy().ravel().tolist()
            ],
        }
        for output in response.outputs
    }
    return {"id": response.id, "model": response.model_name, "outputs": outputs}


async def refused(call):
    """Status and text of the HTTP error that a call ends with."""
    try:
        await call
    except httpx.HTTPStatusError as error:
        return {"status": error.response.status_code, "text": str(error)}
    return {"status": 200}


async def v1(url):
    """What it sees in the protocol of TF Serving, which KServe calls v1."""
    client = InferenceRESTClient(RESTConfig(protocol="v1"))
    return {
        "live": await client.is_server_live(url),
        "ready": await client.is_model_ready(url, "half_plus_two"),
        "unknown": await refused(client.is_model_ready(url, "nobody")),
        "predictions": await client.infer(url, {"instances": [1.0, 2.0, 5.0]}, "half_plus_two"),
        "wrong": await refused(client.infer(url, {"instances": ["one"]}, "half_plus_two")),
    }


async def v2(url):
    client = InferenceRESTClient(RESTConfig(protocol="v2"))

    async def infer(model, binary, parameters=None, **arrays):
        return shown(await client.infer(url, request(model, binary, parameters, **arrays), model))

    wrong = request("half_plus_two", False, other=BATCH)
    return {
        "live": await client.is_server_live(url),
        "ready": await client.is_server_ready(url),
        "model_ready": await client.is_model_ready(url, "half_plus_two"),
        "unknown_ready": await client.is_model_ready(url, "nobody"),
        "json": await infer("multi_io", False, a=BATCH, b=FACTORS),
        "binary": await infer("multi_io", True, a=BATCH, b=FACTORS),
        "bytes": await infer("bytes", True, {"binary_data_output": True}, image_bytes=TEXTS),
        "halves": await infer("echo", True, {"binary_data_output": True, "signature": "float16"}, x=HALVES),
        "signature": await infer("multi_io", False, {"signature": "norm"}, a=BATCH),
        "wrong": await refused(client.infer(url, wrong, "half_plus_two")),
        "unknown": await refused(client.infer(url, wrong, "nobody")),
    }


async def main(url):
    print(json.dumps({"v1": await v1(url), "v2": await v2(url)}))


asyncio.run(main(sys.argv[1]))
