"""``tfs-proxy serve``: one model archive over HTTP."""

import argparse

from tfs_proxy.commands.listening import add_serving_arguments, exit_on_stop_signals, listen
from tfs_proxy.settings import inherited_environment

DESCRIPTION = """\
Serve a TensorFlow model archive at /invocations, as Amazon SageMaker does.

MODEL is a model.tar.gz, a folder or an s3:// address of either. The default is SAGEMAKER_MODEL_URI, or
/opt/ml/model if that is not set. All other settings come from the environment; docs/reference/settings.md
lists them.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``serve``."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help="model.tar.gz, folder or s3:// address")
    add_serving_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until a stop signal."""
    exit_on_stop_signals()
    settings, listener = listen(arguments.host, arguments.port)
    import asyncio

    from tfs_proxy.supervisor.opening import ServeRequest
    from tfs_proxy.supervisor.run import serve

    request = ServeRequest(arguments.model, arguments.model_server, inherited_environment())
    return asyncio.run(serve(settings, listener, request))
