"""Scenarios: what Triton's clients ask of a server and of its models, without a tensor."""

from triton_client import scenario


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


@scenario
async def left_out(client):
    """Triton's extensions that the server does not have."""
    return {
        "config": await client.refused("get_model_config", "multi_io"),
        "statistics": await client.refused("get_inference_statistics", "versions"),
        "index": await client.refused("get_model_repository_index"),
        "load": await client.refused("load_model", "multi_io"),
        "unload": await client.refused("unload_model", "multi_io"),
        "register": await client.refused("register_system_shared_memory", "region", "/region", 8),
        "cuda status": await client.refused("get_cuda_shared_memory_status"),
        "trace": await client.refused("get_trace_settings"),
        "log": await client.refused("get_log_settings"),
    }
