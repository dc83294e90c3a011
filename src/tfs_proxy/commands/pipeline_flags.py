"""The flags of `tfs-proxy pipeline`, read into what its run loop takes."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from tfs_proxy.errors import SettingsError
from tfs_proxy.pipeline.run import Request
from tfs_proxy.pipeline.stage import StageOrder, check_count

HELP = """\
Serve an inference pipeline, as SageMaker's PipelineModel does.

Each STAGE is what `tfs-proxy serve` takes: a model.tar.gz, a folder or an s3:// address, with a SavedModel
or a script that is the model. Each gets a serving stack and ports of its own; body and Content-Type of its
answer are the next one's request, and the caller's Accept goes to the last. The environment holds for all
stages, --env for one.
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Define those that `serve` has not."""
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="2 to 15 archives, in order")
    parser.add_argument(
        "--env", action="append", default=[], metavar="N:NAME=VALUE", help="a variable for stage N alone"
    )
    parser.add_argument("--summary", type=Path, metavar="FILE", help="write latencies as JSON at the end")


def request_of(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Request:
    """What is asked for; raises SettingsError where it can't be done."""
    variables = _by_stage(arguments.env, len(arguments.stages))
    orders = [
        StageOrder(archive, variables[place]) for place, archive in enumerate(arguments.stages, start=1)
    ]
    check_count(orders)
    return Request(orders, arguments.model_server, environ, arguments.summary)


def _by_stage(texts: Sequence[str], count: int) -> dict[int, dict[str, str]]:
    found: dict[int, dict[str, str]] = {place: {} for place in range(1, count + 1)}
    for text in texts:
        place, _, variable = text.partition(":")
        name, equals, value = variable.partition("=")
        if not (place.isdecimal() and int(place) in found and name and equals):
            raise SettingsError(
                f"--env {text} can't be used: it must be N:NAME=VALUE, with N from 1 to {count}."
            )
        found[int(place)][name] = value
    return found
