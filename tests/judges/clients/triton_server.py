"""Scenarios: what Triton's clients ask of a server and of its models, without a tensor."""

import asyncio

import numpy as np
from triton_client import scenario


def tensors(metadata, names=("inputs", "outputs"), keys=("datatype", "shape")):
    """Tensors of model metadata or of Triton's configuration: kind and shape by name."""
    kind, shape = keys
    return [
        {tensor["name"]: [tensor[kind], [int(size) for size in tensor[shape]]] for tensor in metadata[name]}
        for name in names
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
    config = await client.told("get_model_config", "multi_io")
    config = config if client.is_http else config["config"]
    return {
        "server": [server["name"], sorted(server["extensions"])],
        "model": [model["name"], model["versions"], model["platform"]],
        "same": model == versioned,
        "tensors": tensors(model),
        "config": [config["name"], config["platform"], int(config.get("max_batch_size", 0))],
        "config tensors": tensors(config, ("input", "output"), ("data_type", "dims")),
    }


@scenario
async def statistics(client):
    """How the counts of a model grow with three inferences."""

    async def counted():
        told = await client.told("get_inference_statistics", "versions")
        (entry,) = [entry for entry in told["model_stats"] if entry["version"] == "2"]
        parts = {name: int(part.get("count", 0)) for name, part in entry["inference_stats"].items()}
        return int(entry.get("inference_count", 0)), parts, entry

    before, parts_before, _ = await counted()
    x = client.tensor("x", np.ones([2], np.float32))
    for _ in range(3):
        await client.call("infer", "versions", [x])
    for _ in range(100):
        after, parts, entry = await counted()
        if after >= before + 3:
            break
        await asyncio.sleep(0.05)
    models = (await client.told("get_inference_statistics"))["model_stats"]
    return {
        "more": after - before,
        "parts": {name: count - parts_before[name] for name, count in parts.items()},
        "spent": {name: int(part.get("ns", 0)) > 0 for name, part in entry["inference_stats"].items()},
        "last": int(entry.get("last_inference", 0)),
        "all": sorted({model["name"] for model in models}),
    }


@scenario
async def index(client):
    told = await client.told("get_model_repository_index")
    entries = told if client.is_http else told.get("models", [])
    return {f"{entry['name']} {entry.get('version', '')}".strip(): entry["state"] for entry in entries}


@scenario
async def repository(client):
    """Models that come and go: loaded, listed, asked, unloaded, and loaded by an inference."""
    model, x = "half.half_plus_two", np.ones([2], np.float32)
    seen = {"before": await index(client)}
    await client.call("load_model", "half")
    seen["loaded"] = await index(client)
    seen["ready"] = await client.call("is_model_ready", model)
    seen["answer"] = (await client.call("infer", model, [client.tensor("x", x)])).as_numpy("y").tolist()
    seen["statistics"] = (await client.told("get_inference_statistics", model))["model_stats"][0]["name"]
    await client.call("unload_model", "half")
    seen["unloaded"] = await index(client)
    on_demand = await client.call("infer", model, [client.tensor("x", 3 * x)])
    seen["on demand"] = on_demand.as_numpy("y").tolist()
    await client.call("unload_model", "half")
    seen["no model"] = await client.refused("load_model", "nowhere")
    return seen


@scenario
async def shared_memory(client):
    """Tensors in memory that no server can see, and the calls that tell of it."""
    one = client.tensor("x", np.ones([2], np.float32))
    shared = client.module.InferInput("x", [2], "FP32")
    shared.set_shared_memory("region", 8)
    answered = client.output("y")
    answered.set_shared_memory("region", 8)
    x = {"parameters": {"signature": "float32"}}
    return {
        "input": await client.refused("infer", "echo", [shared], **x),
        "output": await client.refused("infer", "echo", [one], outputs=[answered], **x),
        "register": await client.refused("register_system_shared_memory", "region", "/region", 8),
        "status": await client.refused("get_system_shared_memory_status"),
        "unregister": await client.refused("unregister_system_shared_memory"),
        "cuda": await client.refused("register_cuda_shared_memory", "region", b"aGFuZGxl", 0, 8),
        "cuda status": await client.refused("get_cuda_shared_memory_status"),
        "cuda unregister": await client.refused("unregister_cuda_shared_memory"),
    }
