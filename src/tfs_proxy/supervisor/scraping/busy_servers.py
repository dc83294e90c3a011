"""Whether a model server is there whose REST API does not answer in time, for `model_states`."""

from typing import Final

from tfs_proxy.deployment import Instance

METHOD: Final = "/tensorflow.serving.ModelService/GetModelStatus"
NO_ANSWER: Final = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE"})


def answers_grpc(instance: Instance, timeout_seconds: float) -> bool:
    """Ask for the status of no model, over gRPC, whose threads are others than those of REST; blocks.

    The refusal of such a call is an answer, too.
    """
    # PERF: hardly any run needs it, and it takes 15 MB.
    import grpc

    from tfs_proxy.upstream.grpc_channels import open_channel

    with open_channel(instance) as channel:
        try:
            channel.unary_unary(METHOD)(b"", timeout=timeout_seconds)
        except grpc.RpcError as error:
            return error.code().name not in NO_ANSWER
    return True
