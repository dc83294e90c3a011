"""``tfs-proxy init``: makes a folder with a new script, its test, and the commands to go on with."""

import argparse
import os
import shlex
from importlib.util import find_spec
from pathlib import Path

from tfs_proxy.commands.arguments import interruptible, log_to_stderr
from tfs_proxy.settings.settings import Settings

DESCRIPTION = """\
Write a new script into FOLDER: code/inference.py with annotated handlers, its test, requirements.txt, an
example request, and a README with the commands to go on with.

With --model, they are made for its default model: the script names its inputs and outputs, the example
request is one that it takes, and the model is copied into FOLDER, unless it is there. Then
`tfs-proxy serve FOLDER` serves both.

Nothing is overwritten.

Exit status: 0; 2 if FOLDER or MODEL can't be used, or if a file is there already; 130 if stopped. Unless it
is 0, nothing is written.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="the folder to write, new or not")
    parser.add_argument(
        "--model", metavar="MODEL", help="model.tar.gz, folder, s3:// address or model file to write it for"
    )
    parser.add_argument(
        "--typed",
        action="store_true",
        help="write one handler with a class of a record and one of its answer, by which JSON is checked",
    )


def run(arguments: argparse.Namespace) -> int:
    from tfs_proxy.tools.pack.starter import Starter, init

    log_to_stderr("WARNING")
    with interruptible("stopped, and nothing was written"):
        starter: Starter = init(arguments.folder, arguments.model, Settings.from_env(), typed=arguments.typed)
    folder = shlex.quote(os.fspath(arguments.folder))
    model = starter.model
    for file in starter.files:
        if file.parts[0] != model.name:
            print(f"Wrote {arguments.folder / file}")
    if model.found is None:
        print(f"Next: put a model into {folder}/{model.name}/1, or run init with --model")
    else:
        print(f"Next: tfs-proxy serve {folder}")
    install = "" if find_spec("pytest") else "pip install pytest && "
    print(f"Test: {install}python -m pytest {folder}/tests")
    return 0
