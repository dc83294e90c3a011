"""The process of the gRPC router, which sends calls to the models that they name: pure."""

import sys
from collections.abc import Mapping

from tfs_proxy.layout import Workspace
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor.process import ProcessSpec

PROGRAM = "tfs_proxy.grpc_router"


def argv(settings: Settings, workspace: Workspace, answer_seconds: float) -> tuple[str, ...]:
    """The whole command; the model server has ``answer_seconds`` for a call."""
    return (
        sys.executable,
        "-m",
        PROGRAM,
        f"--socket={workspace.grpc_router_socket}",
        f"--gates={workspace.grpc_gates}",
        f"--control-socket={workspace.control_socket}",
        f"--instances={settings.instance_count}",
        f"--message-bytes={settings.max_payload_bytes}",
        f"--wait-seconds={settings.request_timeout_seconds}",
        f"--answer-seconds={answer_seconds}",
    )


def process(
    settings: Settings, workspace: Workspace, answer_seconds: float, environ: Mapping[str, str]
) -> ProcessSpec:
    """The router; calls in flight end before it does."""
    return ProcessSpec(
        name="gRPC router",
        argv=argv(settings, workspace, answer_seconds),
        # Any client can have gRPC itself log an error.
        env={"GRPC_VERBOSITY": "NONE", **environ},
        drops_output=True,
    )
