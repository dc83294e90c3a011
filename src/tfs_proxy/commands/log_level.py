"""``tfs-proxy log-level``: shows or changes the level at which a run logs, while it runs."""

import argparse

from tfs_proxy.observe.logs.config import LEVELS
from tfs_proxy.settings.settings import Settings

DESCRIPTION = """\
Change how much a run logs, while it runs; without LEVEL, print the level.

The run is found in TFS_PROXY_HOME, or in the system's temporary folder if that is not set. If several runs
are there, --port chooses. The stages of a pipeline follow it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("level", nargs="?", metavar="LEVEL", choices=LEVELS, help=", ".join(LEVELS))
    parser.add_argument("--port", type=int, help="the port on which the run listens")


def run(arguments: argparse.Namespace) -> int:
    from tfs_proxy.run.logs.run_log import chosen, found_runs

    runs = chosen(found_runs(Settings.from_env().home), arguments.port)
    if arguments.level is None:
        print(runs[0].level)
        return 0
    for found in runs:
        found.set_level(arguments.level)
    return 0
