"""``tfs-proxy conform``: checks whether a container of any framework keeps SageMaker's contract."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfs_proxy.commands.arguments import interruptible
from tfs_proxy.settings.settings import Settings, inherited_environment
from tfs_proxy.values.errors import SettingsError

if TYPE_CHECKING:
    from tfs_proxy.tools.conform.check import Check
    from tfs_proxy.tools.conform.judge import CheckResult


DESCRIPTION = """\
Judge whether a container keeps SageMaker's contract: one that runs at URL, an image, or a command that
serves on this machine.

A check is a must, which SageMaker needs, or advice. A good request is described by the file of --requests,
or found by trying. Each check is printed as it ends; one that does not apply is listed with the reason.
With a URL, nothing is started or stopped.

In --command, {port} is replaced by a free port, {model} by the folder of --model. Without {port} the command
gets SAGEMAKER_BIND_TO_PORT, and is expected to listen there. For the checks of multi-model endpoints a word
that is {model} is left out.

Exit status: 0 if nothing was found but advice; 1 if a must failed; 2 if nothing could be run.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", nargs="?", metavar="URL", help="http://HOST:PORT of a container that runs")
    parser.add_argument("--image", help="an image that Docker has, run as `docker run IMAGE serve`")
    parser.add_argument("--command", dest="command_line", metavar="COMMAND", help="a command that serves")
    parser.add_argument(
        "--model", type=Path, metavar="MODEL", help="folder or archive: /opt/ml/model of an image"
    )
    parser.add_argument(
        "--requests", type=Path, metavar="FILE", help="JSON: a good request, a bad one, a slow one, and so on"
    )
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="for the container")
    parser.add_argument(
        "--docker-option", action="append", default=[], metavar="WORD", help="one more word for `docker run`"
    )
    parser.add_argument(
        "--port",
        type=int,
        default=8080,
        help="what a --command without {port} is told (default: %(default)s)",
    )
    parser.add_argument(
        "--start-timeout",
        type=float,
        default=240.0,
        metavar="SECONDS",
        help="until ping must answer 200 (default: 240)",
    )
    for name in ("multi-model", "pipeline", "websocket"):
        parser.add_argument(
            f"--{name}", action="store_true", help="the container says that it can do this: judge it"
        )
    parser.add_argument(
        "--only", action="append", default=[], metavar="GROUP[/CHECK]", help="run these alone"
    )
    parser.add_argument(
        "--skip", action="append", default=[], metavar="GROUP[/CHECK]", help="leave these out"
    )
    parser.add_argument("--list", action="store_true", help="print the checks, and run none")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the results as JUnit's XML")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as JSON")


def run(arguments: argparse.Namespace) -> int:
    from tfs_proxy.tools.conform.check import selected
    from tfs_proxy.tools.conform.checks import ALL
    from tfs_proxy.tools.conform.judge import list_lines

    checks = selected(ALL, arguments.only, arguments.skip)
    if arguments.list:
        print(*list_lines(checks), sep="\n")
        return 0
    with interruptible():
        return _judge(arguments, checks)


def _judge(arguments: argparse.Namespace, checks: Sequence["Check"]) -> int:
    from tfs_proxy.tools.conform.judge import Judge, exit_status, result_lines, summary_lines
    from tfs_proxy.tools.conform.targets import judging_of

    _refuse_unwritable([arguments.junit, arguments.json])
    options = vars(arguments) | {"command": arguments.command_line}
    with judging_of(options.__getitem__, Settings.from_env(), inherited_environment()) as judging:
        print(f"Judging {judging.target.name}", flush=True)
        judge = Judge(judging)
        results = judge.run(checks, lambda result: print(*result_lines(result), sep="\n", flush=True))
        print(*summary_lines(results, judging.probed), sep="\n")
        _write_files(arguments, judging.target.name, results, judging.probed)
    return exit_status(results)


def _refuse_unwritable(paths: Sequence[Path | None]) -> None:
    """Raises SettingsError for a file that can't be written, before the checks take minutes."""
    for path in filter(None, paths):
        if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
            raise SettingsError(
                f"{path} can't be written: it must be a file in a folder that can be written."
            )


def _write_files(
    arguments: argparse.Namespace, target: str, results: Sequence["CheckResult"], probed: Sequence[str]
) -> None:
    from tfs_proxy.tools.conform.judge import json_text, junit_text

    if arguments.junit:
        _write(arguments.junit, junit_text(target, results))
    if arguments.json:
        _write(arguments.json, json_text(target, results, probed))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{path} can't be written: {error.strerror}.") from None
