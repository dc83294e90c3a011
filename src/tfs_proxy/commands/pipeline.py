"""``tfs-proxy pipeline``: serves several model archives in a row over HTTP."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfs_proxy.commands.arguments import add_serving_arguments, exit_on_stop_signals, listen
from tfs_proxy.settings.settings import inherited_environment
from tfs_proxy.values.errors import SettingsError

if TYPE_CHECKING:
    from tfs_proxy.run.pipeline.run import PipelineRequest

DESCRIPTION = """\
Serve an inference pipeline, as SageMaker's PipelineModel does.

Each STAGE is what `tfs-proxy serve` takes: a model.tar.gz, a folder or an s3:// address, with a SavedModel
or a script that is the model. Each stage runs as a serving stack with ports of its own. The body and the
Content-Type of its answer are the next stage's request; the client's Accept goes to the last stage. All
stages share this environment; --env sets a variable for one stage.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="2 to 15 archives, in order")
    parser.add_argument(
        "--env", action="append", default=[], metavar="N:NAME=VALUE", help="a variable for stage N alone"
    )
    parser.add_argument("--summary", type=Path, metavar="FILE", help="write latencies as JSON at the end")
    add_serving_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    exit_on_stop_signals()
    request = request_from(arguments, inherited_environment())
    settings, listeners = listen(arguments.host, arguments.port)
    import asyncio

    from tfs_proxy.run.pipeline.run import serve

    return asyncio.run(serve(settings, listeners, request))


def request_from(arguments: argparse.Namespace, environ: Mapping[str, str]) -> "PipelineRequest":
    """Raises SettingsError if the request can't be carried out."""
    from tfs_proxy.run.pipeline.run import PipelineRequest
    from tfs_proxy.run.pipeline.stage import StageOrder, check_count

    variables = _variables_by_stage(arguments.env, len(arguments.stages))
    orders = [
        StageOrder(archive, variables_of_stage)
        for archive, variables_of_stage in zip(arguments.stages, variables.values(), strict=True)
    ]
    check_count(orders)
    return PipelineRequest(orders, arguments.model_server, environ, arguments.summary)


def _variables_by_stage(texts: Sequence[str], stage_count: int) -> dict[str, dict[str, str]]:
    variables: dict[str, dict[str, str]] = {str(number): {} for number in range(1, stage_count + 1)}
    for text in texts:
        number, _, assignment = text.partition(":")
        name, equals, value = assignment.partition("=")
        if not (number in variables and name and equals):
            raise SettingsError(
                f"--env {text} can't be used: it must be N:NAME=VALUE, with N from 1 to {stage_count}."
            )
        variables[number][name] = value
    return variables
