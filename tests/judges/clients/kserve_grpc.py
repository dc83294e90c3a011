"""Calls each method of kserve's gRPC client; prints what it got as one line of JSON."""

import asyncio
import json
import sys

import grpc
import numpy as np
from kserve import InferenceGRPCClient, InferInput, InferRequest

BATCH = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)
FACTORS = np.array([1, 20], np.int64)


def request(model, raw, name_of_a="a"):
    """Two tensors, raw or as a list of numbers in the message itself."""
    inputs = []
    for name, array, datatype in ((name_of_a, BATCH, "FP32"), ("b", FACTORS, "INT64")):
        if raw:
            inputs.append(InferInput(name, list(array.shape), datatype))
            inputs[-1].set_data_from_numpy(array)
        else:
            inputs.append(InferInput(name, list(array.shape), datatype, array.ravel().tolist()))
    return InferRequest(model, inputs, request_id="from-kserve")


def shown(response):
    outputs = {
        output.name: {
            "datatype": output.datatype,
            "shape": output.shape,
            "values": [
                value.decode() if isinstance(value, bytes) else value
                for value in output.as_numpy().ravel().tolist()
            ],
        }
        for output in response.outputs
    }
    return {
        "id": response.id,
        "model": response.model_name,
        "version": response.model_version,
        "outputs": outputs,
    }


async def refused(call):
    try:
        await call
    except grpc.RpcError as error:
        return {"code": error.code().name, "text": error.details()}
    return {"code": "OK"}


async def main(address):
    async with InferenceGRPCClient(address) as client:
        seen = {
            "live": await client.is_server_live(),
            "ready": await client.is_server_ready(),
            "model_ready": await client.is_model_ready("multi_io"),
            "unknown_ready": await refused(client.is_model_ready("nobody")),
            "raw": shown(await client.infer(request("multi_io", True))),
            "contents": shown(await client.infer(request("multi_io", False))),
            "wrong": await refused(client.infer(request("multi_io", True, "c"))),
            "unknown": await refused(client.infer(request("nobody", True))),
        }
    print(json.dumps(seen))


asyncio.run(main(sys.argv[1]))
