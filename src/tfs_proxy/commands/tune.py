"""``tfs-proxy tune``: finds the fastest settings for a model on this machine by measuring."""

import argparse
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tfs_proxy.commands.arguments import also_as, interruptible, log_to_stderr, read_requests
from tfs_proxy.settings.settings import Settings, inherited_environment
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.resources import raise_descriptor_limit

if TYPE_CHECKING:
    from tfs_proxy.tools.tune.findings import Findings

NOT_FOUND = 1
DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s)")

DESCRIPTION = """\
Find the workers, threads and batching with which this machine answers most requests to MODEL per second, 99
of 100 of them within --p99. Each try starts the whole stack with other settings and sends requests over more
and more connections, so nothing else should run here; what is set in the environment stays as it is.

Standard output gets the best settings, as a file for `docker run --env-file`, with a table of what was tried
and the same as SageMaker's Environment in its comments; -o draws requests per second against latency. Ctrl-C
ends the search and prints what is known by then.

Exit status: 0; 1 if no settings keep p99 within --p99; 2 if MODEL, a flag or a request can't be used; 3 if
the script can't be used; 4 if the model can't be loaded; 130 if stopped.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL", help="as for serve")
    parser.add_argument(
        "--p99",
        type=duration_ms,
        required=True,
        metavar="TIME",
        help="in which 99 of 100 requests are to be answered, such as 50ms or 1.5s",
    )
    request = parser.add_argument(
        "--request",
        metavar="FILE",
        type=Path,
        help="body of a request to send, or a file of data capture with many (default: one is made of the "
        "signature)",
    )
    also_as("--requests", request, parser)
    parser.add_argument("--content-type", metavar="TYPE", help="its type (default: by the ending of FILE)")
    parser.add_argument("--custom-attributes", metavar="TEXT", help="its custom attributes (default: none)")
    parser.add_argument(
        "--budget",
        type=_seconds,
        default=300.0,
        metavar="SECONDS",
        help="how long the search may take (default: 300)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="the picture to write, as SVG")
    parser.add_argument("--json", action="store_true", help="print all that was measured, as JSON")
    parser.add_argument(
        "--model-server", default="auto", metavar="auto|embedded|PATH", help="as for serve (default: auto)"
    )


def duration_ms(text: str) -> float:
    match = DURATION.fullmatch(text)
    if match is None or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text} is not a time above 0, such as 50ms or 1.5s")
    return float(match[1]) * (1000 if match[2] == "s" else 1)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return seconds


def run(arguments: argparse.Namespace) -> int:
    log_to_stderr("INFO")
    raise_descriptor_limit()
    with interruptible():
        return _tune(arguments, Settings.from_env())


def _tune(arguments: argparse.Namespace, settings: Settings) -> int:
    from tfs_proxy.run.host.workspace import temporary_workspace
    from tfs_proxy.tools.pack.model_kinds import laid_out
    from tfs_proxy.tools.tune.run import TuneRequest, Tuning

    requests = read_requests(arguments.request, arguments.content_type, arguments.custom_attributes)
    if arguments.output is not None and not arguments.output.parent.is_dir():
        raise SettingsError(f"-o {arguments.output} can't be written: its folder is not there.")
    with temporary_workspace(settings.home, "tfs-proxy-tune-") as workspace:
        model = laid_out(arguments.model or settings.model, workspace, settings, threading.Event())
        request = TuneRequest(
            model=model,
            p99_ms=arguments.p99,
            budget_seconds=arguments.budget,
            requests=requests,
            flags=("--model-server", arguments.model_server),
            environ=inherited_environment(),
        )
        tuning = Tuning(request, settings, workspace)
        try:
            tuning.run()
        except KeyboardInterrupt:
            _print(arguments, tuning.findings())
            raise
    return _print(arguments, tuning.findings())


def _print(arguments: argparse.Namespace, findings: "Findings") -> int:
    """Prints and draws the findings; returns the exit status."""
    from tfs_proxy.tools.tune.findings import json_text, picture, result_lines

    if arguments.json:
        print(json_text(findings))
    else:
        print(*result_lines(findings), sep="\n")
    if arguments.output is not None:
        try:
            arguments.output.write_text(picture(findings), encoding="utf-8")
        except OSError as error:
            raise SettingsError(f"-o {arguments.output} can't be written: {error.strerror}.") from None
    return 0 if findings.best else NOT_FOUND
