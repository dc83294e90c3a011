"""``tfs-proxy endpoint``: SageMaker's endpoints on this machine, for boto3 and the SDKs."""

import argparse
import asyncio
from pathlib import Path

from tfs_proxy.commands.arguments import at_least_one, exit_on_stop_signals, listen
from tfs_proxy.settings.settings import inherited_environment

PORT = 8090

DESCRIPTION = """\
Serve what CreateModel, CreateEndpointConfig and CreateEndpoint describe, as SageMaker does, to clients of
sagemaker-runtime and sagemaker: boto3.client("sagemaker-runtime", endpoint_url="http://localhost:8090").
Batch jobs of CreateTransformJob run here, too.

CONFIG.json has the requests, by operation: {"CreateModel": {...}, "CreateEndpointConfig": {...},
"CreateEndpoint": {...}}, each one or a list; or is one request, as `aws sagemaker create-model
--cli-input-json` takes it. Without CreateEndpoint, or without a file, it waits for calls that create what
is served. Addresses may also be file:// or a path relative to the file, below the folders of --files.
A container is the one that --container names, else its Image if that is http://HOST:PORT or an image that
Docker has, else this package's own, without Docker.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("configs", nargs="*", type=Path, metavar="CONFIG.json", help="requests to AWS's API")
    parser.add_argument(
        "--container",
        action="append",
        default=[],
        metavar="NAME=WHERE",
        help="container for a ContainerHostname or ModelName: local, an image, or http://HOST:PORT",
    )
    parser.add_argument(
        "--files",
        action="append",
        type=Path,
        metavar="FOLDER",
        help="requests may name files of this machine only below FOLDER; can be repeated "
        "(default: the working directory)",
    )
    parser.add_argument(
        "--jobs",
        type=at_least_one,
        default=1,
        metavar="N",
        help="transform jobs that run at once (default: %(default)s)",
    )
    parser.add_argument("--port", type=int, default=PORT, help="port to listen on (default: %(default)s)")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: %(default)s, this machine alone)"
    )


def run(arguments: argparse.Namespace) -> int:
    exit_on_stop_signals()
    from tfs_proxy.tools.endpoint.run import EndpointOptions, catalogue_of, serve
    from tfs_proxy.tools.endpoint.starter import parse_choices
    from tfs_proxy.values.layout import LocalFiles

    choices = parse_choices(arguments.container)
    files = LocalFiles.below(arguments.files or [Path.cwd()])
    catalogue = catalogue_of(arguments.configs, files)
    settings, listeners = listen(arguments.host, arguments.port)
    options = EndpointOptions(catalogue, files, choices, inherited_environment(), arguments.jobs)
    return asyncio.run(serve(settings, listeners, options))
