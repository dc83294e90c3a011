"""One call of TF Serving's HandleReloadConfigRequest: the models that a model server is to have."""

from pathlib import Path
from typing import Final

from tfs_proxy.errors import ModelLoadError, UpstreamTimeout, UpstreamUnavailable

METHOD: Final = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"
AWAY: Final = frozenset({"UNAVAILABLE", "CANCELLED"})
"""The codes of a call whose model server has gone."""

TOO_LATE: Final = "DEADLINE_EXCEEDED"


def reload(grpc_socket: Path, config: str, timeout_seconds: float) -> None:
    """Have the model server take ``config``, a ModelServerConfig as text; blocks until its models are loaded.

    Raises UpstreamUnavailable if it went away, UpstreamTimeout if it takes longer, and ModelLoadError with
    its own words if it refuses the config or a new model can't be loaded
    (docs/reference/tensorflow-serving.md).
    """
    # PERF: neither is needed before the first model comes.
    import grpc
    from google.protobuf import text_format

    from tfs_proxy.protos import POOL, ReloadConfigRequest

    request = ReloadConfigRequest()
    text_format.Parse(config, request.config, descriptor_pool=POOL)
    with grpc.insecure_channel(f"unix:{grpc_socket}") as channel:
        call = channel.unary_unary(METHOD)
        try:
            call(request.SerializeToString(), timeout=timeout_seconds)
        except grpc.RpcError as error:
            code, details = error.code().name, error.details() or ""
            if code == TOO_LATE:
                raise UpstreamTimeout(f"no reload within {timeout_seconds:g} s") from error
            if code in AWAY:
                raise UpstreamUnavailable(f"the model server went away: {details}") from error
            raise ModelLoadError(f"{code}: {details}") from error
