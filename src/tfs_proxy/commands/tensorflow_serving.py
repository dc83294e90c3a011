"""``tfs-proxy tensorflow-serving``: replaces the image tensorflow/serving, with its flags."""

import argparse

from tfs_proxy.commands.arguments import exit_on_stop_signals, listen
from tfs_proxy.settings.settings import inherited_environment

DESCRIPTION = """\
Serve as the image tensorflow/serving does: MODEL_NAME below MODEL_BASE_PATH (/models), gRPC on 8500, REST on
8501, and /invocations on SAGEMAKER_BIND_TO_PORT (8080). Each FLAG is one of the model server's:
"""
USAGE = "[FLAG ...]"


def run(arguments: argparse.Namespace) -> int:
    """Serves until a stop signal or the model server's end; passes --help and --version to it."""
    exit_on_stop_signals()
    if {"--help", "--version"} & set(arguments.words):
        if "--help" in arguments.words:
            print(arguments.usage(), flush=True)
        from tfs_proxy.commands.container import run_program
        from tfs_proxy.run.programs.model_server import AUTO, program

        run_program([*program(AUTO), *arguments.words])
    settings, listeners = listen()
    # The model server has its own ports for gRPC and REST.
    settings = settings.with_values(grpc_port=None, extra_ports=None, instance_count=1)
    import asyncio

    from tfs_proxy.run.archive_stacks import serve
    from tfs_proxy.run.opening import ServeRequest

    request = ServeRequest(None, "auto", inherited_environment(), tuple(arguments.words))
    return asyncio.run(serve(settings, listeners, request))
