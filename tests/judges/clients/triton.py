"""Triton's clients on an endpoint: `triton.py PROTOCOL ADDRESS SCENARIO...` prints what each scenario saw, as JSON.

PROTOCOL is http, http.aio, grpc or grpc.aio. What a scenario raises is printed in its place, so that the others
are seen.
"""

import asyncio
import contextlib
import io
import json
import sys
import urllib.request

import numpy as np
from triton_client import SIGNATURES, Client, in_json, limits

SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


def table(client, binary=True):
    """The inputs of the model `multi_io`."""
    a = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    return [client.tensor("a", a, binary), client.tensor("b", np.array([1, 2], np.int64), binary)]


@scenario
async def inference(client):
    """All ways to send and to ask for tensors; gRPC has one of each."""
    ways = [(sent, asked) for sent in (True, False) for asked in (True, False, None)]
    seen = {}
    for sent, asked in ways if client.is_http else [(True, True), (True, None)]:
        outputs = asked is not None and [client.output(name, asked) for name in ("sum", "label", "count")]
        result = await client.call("infer", "multi_io", table(client, sent), outputs=outputs or None)
        values = {name: result.as_numpy(name).tolist() for name in ("sum", "count")}
        label = [value if isinstance(value, str) else value.decode() for value in result.as_numpy("label")]
        seen[f"{sent} {asked}"] = {**values, "label": label}
    return seen


@scenario
async def envelope(client):
    """What surrounds tensors: id, version, parameters, and the outputs asked for in their order."""
    result = await client.call(
        "infer",
        "multi_io",
        table(client),
        model_version="1",
        request_id="first one",
        outputs=[client.output("count"), client.output("sum")],
        parameters={"mine": "text", "number": 3, "flag": True},
    )
    answer = result.get_response() if client.is_http else result.get_response(as_json=True)
    parameters = {
        name: value if client.is_http else next(iter(value.values()))
        for name, value in answer["parameters"].items()
    }
    return {
        "id": answer["id"],
        "model": [answer["model_name"], answer["model_version"]],
        "outputs": [output["name"] for output in answer["outputs"]],
        "parameters": {name: str(value) for name, value in parameters.items()},
    }


@scenario
async def datatypes(client):
    return {name: await client.echoed(limits(name).reshape(2, 3)) for name in SIGNATURES}


@scenario
async def json_datatypes(client):
    names = [name for name in SIGNATURES if name not in {"FP16", "BF16"}]
    return {name: await client.echoed(in_json(name), False, False) for name in names}


@scenario
async def shapes(client):
    arrays = {
        "empty": np.zeros([0], np.float32),
        "no rows": np.zeros([0, 3], np.int64),
        "no columns": np.zeros([2, 0, 4], np.float16),
        "no strings": np.zeros([0, 2], object),
        "scalar": np.array(7.25, np.float32),
        "one string": np.array(b"\x00alone", object),
        "large": np.arange(2_000_000, dtype=np.float32).reshape(1000, 2, 1000),
    }
    seen = {name: await client.echoed(array) for name, array in arrays.items()}
    for name in ("empty", "no rows", "scalar") if client.is_http else ():
        seen[f"{name} in JSON"] = await client.echoed(arrays[name], False, False)
    seen["large"] = is_same(seen["large"])
    return seen


@scenario
async def compression(client):
    """Packed both ways; how the answers came stands in what a talkative client prints."""
    array = np.arange(50_000, dtype=np.int64)
    seen = {}
    for way in ("gzip", "deflate"):
        if not client.is_http:
            one = [client.tensor("x", array.astype(np.float32))]
            refused = await client.refused("infer", "versions", one, compression_algorithm=way)
            seen[way] = refused.get("status", "answered")
            continue
        talkative, printed = Client(client.protocol, client.address, verbose=True), io.StringIO()
        both = {"request_compression_algorithm": way, "response_compression_algorithm": way}
        with contextlib.redirect_stdout(printed):
            seen[way] = {"same": is_same(await talkative.echoed(array, **both))}
            await talkative.call("close")
        answer = printed.getvalue().lower().rpartition("content-encoding")[2]
        seen[way]["packed"] = way in answer[:20]
    return seen


def is_same(echoed):
    return echoed["sent"] == echoed["received"]


@scenario
async def refusals(client):
    wrong = [client.tensor("x", np.ones([2], np.int32))]
    return {
        "no model": await client.refused("infer", "nowhere", wrong),
        "datatype": await client.refused("infer", "echo", wrong, parameters={"signature": "float32"}),
    }


@scenario
async def sagemaker(client):
    """What Triton's clients write and read for SageMaker's /invocations, where there are no headers."""
    body, size = client.module.InferenceServerClient.generate_request_body(
        table(client), outputs=[client.output("sum"), client.output("count", binary=False)]
    )
    media_type = "application/vnd.sagemaker-triton.binary+json;json-header-size="
    request = urllib.request.Request(
        f"http://{client.address}/invocations", body, {"Content-Type": f"{media_type}{size}"}
    )
    answered, answer = await asyncio.to_thread(posted, request)
    result = client.module.InferenceServerClient.parse_response_body(
        answer, header_length=int(answered.removeprefix(media_type))
    )
    return {name: result.as_numpy(name).tolist() for name in ("sum", "count")}


def posted(request):
    with urllib.request.urlopen(request) as answer:
        return answer.headers["Content-Type"], answer.read()


def tensors(metadata):
    """Kind and shape of tensors of model metadata, by name."""
    return [
        {
            tensor["name"]: [tensor["datatype"], [int(size) for size in tensor["shape"]]]
            for tensor in metadata[name]
        }
        for name in ("inputs", "outputs")
    ]


@scenario
async def health(client):
    return {
        "live": await client.call("is_server_live"),
        "ready": await client.call("is_server_ready"),
        "model": await client.call("is_model_ready", "multi_io"),
        "version": await client.call("is_model_ready", "multi_io", "1"),
        "no version": await client.call("is_model_ready", "multi_io", "7"),
        "no model": await client.call("is_model_ready", "nowhere"),
    }


@scenario
async def metadata(client):
    server = await client.told("get_server_metadata")
    model = await client.told("get_model_metadata", "multi_io")
    versioned = await client.told("get_model_metadata", "multi_io", "1")
    return {
        "server": [server["name"], sorted(server["extensions"])],
        "model": [model["name"], model["versions"], model["platform"]],
        "same": model == versioned,
        "tensors": tensors(model),
    }


async def main(protocol, address, *names):
    client = Client(protocol, address)
    seen = {}
    for name in names:
        try:
            seen[name] = await SCENARIOS[name](client)
        except Exception as error:  # noqa: BLE001
            seen[name] = {"raised": f"{type(error).__name__}: {error}"}
    await client.call("close")
    print(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
