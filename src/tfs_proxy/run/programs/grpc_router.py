"""The process of the gRPC router, which answers calls or sends them to their models: pure."""

import sys
from collections.abc import Mapping
from typing import Final

from tfs_proxy.run.process import Backoff, ProcessSpec
from tfs_proxy.settings.settings import Settings
from tfs_proxy.settings.worker_environment import RouterOptions, written
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.layout import Workspace

PROGRAM = "tfs_proxy.worker.router"
BACKOFF: Final = Backoff(longest_seconds=0.2, tries=60)
"""All gRPC calls fail without it, and it is up again in half a second."""


def process(
    settings: Settings,
    workspace: Workspace,
    answer_seconds: float,
    environ: Mapping[str, str],
    one_archive: Deployment | None = None,
    listen: str | None = None,
) -> ProcessSpec:
    """The router; calls under way end before it does. The model server has ``answer_seconds`` for a call.

    With ``one_archive`` no models come and go. With ``listen``, HOST:PORT, it takes clients' connections,
    too.
    """
    options = RouterOptions(
        socket=str(workspace.grpc_router_socket),
        control_socket=str(workspace.control_socket),
        requests=str(workspace.requests),
        message_bytes=settings.max_payload_bytes,
        wait_seconds=settings.request_timeout_seconds,
        answer_seconds=answer_seconds,
        loads=one_archive is None,
        listen=listen,
        open_inference=(one_archive or settings).open_inference,
        decoded_bytes=settings.max_decoded_bytes,
    )
    return ProcessSpec(
        name="gRPC router",
        argv=(sys.executable, "-m", PROGRAM, written(options)),
        # Any client can make gRPC itself log an error.
        env={"GRPC_VERBOSITY": "NONE", **environ},
        drops_output=True,
        backoff=BACKOFF,
    )
