"""The process that answers the Open Inference Protocol over gRPC: pure."""

import sys
from collections.abc import Mapping
from typing import Final

from tfs_proxy.run.process import Backoff, ProcessSpec
from tfs_proxy.settings.settings import Settings
from tfs_proxy.settings.worker_environment import TranslatorOptions, written
from tfs_proxy.values.deployment import BY_SCRIPT
from tfs_proxy.values.layout import Workspace
from tfs_proxy.wire import routes

PROGRAM = "tfs_proxy.worker.translator"
BACKOFF: Final = Backoff(longest_seconds=0.2, tries=60)
"""All its calls fail without it, and it is up again in half a second."""


def process(
    settings: Settings,
    workspace: Workspace,
    answer_seconds: float,
    environ: Mapping[str, str],
    open_inference: str,
    listen: str | None = None,
) -> ProcessSpec:
    """The translator; calls under way end before it does. Model servers have ``answer_seconds`` each.

    With ``listen``, HOST:PORT, it takes clients' connections, too.
    """
    options = TranslatorOptions(
        socket=str(workspace.translator_socket),
        control_socket=str(workspace.control_socket),
        gates=tuple(str(workspace.grpc_gate(index)) for index in range(settings.instance_count)),
        message_bytes=settings.max_payload_bytes,
        answer_seconds=answer_seconds,
        by_script=open_inference == BY_SCRIPT,
        decoded_bytes=settings.max_decoded_bytes,
        # Without nginx nothing else answers.
        reflected=() if listen else routes.GRPC_SERVICES,
        listen=listen,
    )
    return ProcessSpec(
        name="translator",
        argv=(sys.executable, "-m", PROGRAM, written(options)),
        # Any client can make gRPC itself log an error.
        env={"GRPC_VERBOSITY": "NONE", **environ},
        drops_output=True,
        backoff=BACKOFF,
    )
