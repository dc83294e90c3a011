"""The command line: the table of sub-commands, and the call of the one that is asked for.

start-up: cli -> settings -> model -> run.plan -> run.stack -> run.readiness
"""

import argparse
import importlib
import logging
import os
import select
import signal
import sys
from collections.abc import Sequence
from typing import Any

from tfs_proxy import __version__
from tfs_proxy.values.errors import StopServing
from tfs_proxy.values.names import one_entry, printable, similar
from tfs_proxy.wire.shortages import ending

LISTED = {
    "serve a model": {
        "demo": "serve a small model that the package brings, with pictures to send",
        "serve": "serve a model archive over HTTP, or several in a row",
        "check": "report what would be served, and try the script on a request",
        "ask": "send a file to a container: print the answer, or a table of latencies",
    },
    "make one": {
        "pack": "write a model.tar.gz from a SavedModel, or from a .keras or .h5 file",
        "init": "write a new script, its test and its README",
    },
    "run jobs and endpoints": {
        "transform": "run a batch transform job",
        "endpoint": "SageMaker's endpoints on this machine, for boto3 and the SDKs",
        "settings": "list the variables that configure a run, with their defaults",
    },
}
"""The commands that the help lists, in groups, each with what it does."""

OF_THE_IMAGES = ("container", "model-server", "tensorflow-serving")
"""Commands that are documented with the images; their words are another program's, and are passed on."""

COMMANDS = (*(name for names in LISTED.values() for name in names), *OF_THE_IMAGES)
"""All of them: each is a module of `tfs_proxy.commands`, described there."""

PREFERRED = ("SAGEMAKER_GUNICORN_", "TFS_PROXY_REQUEST_")
"""Beginnings of the settings that an unknown flag most likely means: these are named first."""

SHORTEST_WORD = 4
"""Letters of an unknown flag by which settings are found."""

NO_FLAGS = "\0"
"""As argparse's ``prefix_chars``: no word is a flag, so the parser passes every word on as it is."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command and return its exit status; silent if the reader of its output has gone."""
    try:
        status = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except BrokenPipeError:
        output = select.poll()
        output.register(1, 0)
        if not output.poll(0):  # it was not standard output, as in `| head -1`
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what Python writes at its end
        return 128 + signal.SIGPIPE
    except (StopServing, OSError, RuntimeError) as error:
        end = ending(error)
        _report(str(end))
        return end.exit_status
    return status


def _run(words: Sequence[str]) -> int:
    name, *rest = words or [""]
    if name not in COMMANDS:
        return _run_none(words)
    parser = command_parser(name)
    parsed, unknown = parser.parse_known_args(rest)
    if unknown:
        parser.error(_unknown(name, unknown))
    return int(_module_of(name).run(parsed))


def _module_of(name: str) -> Any:
    # Only the module of this command is imported: `serve` must listen at once.
    return importlib.import_module(f"tfs_proxy.commands.{name.replace('-', '_')}")


def _run_none(words: Sequence[str]) -> int:
    """Print help or version; without a command that there is, that is an error."""
    groups = [
        "\n".join([f"{title}:", *(f"  {name:<10} {what}" for name, what in names.items())])
        for title, names in LISTED.items()
    ]
    root = argparse.ArgumentParser(
        prog="tfs-proxy",
        usage="%(prog)s [-h] [--version] COMMAND ...",
        description="\n\n".join(["Serve TensorFlow models as SageMaker does.", *groups]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action="version", version=f"tfs-proxy {__version__}")
    if words and not words[0].startswith("-"):
        close = "serve A B" if words[0] == "pipeline" else similar(words[0], COMMANDS)
        hint = f"did you mean {close}?" if close else "tfs-proxy --help lists them."
        root.error(f"{printable(words[0])} is not a command: {hint}")
    root.parse_args(words)
    root.print_help(sys.stderr)
    return 2


def _unknown(command: str, unknown: Sequence[str]) -> str:
    """Name the words that are too many, and the settings that flags among them may mean."""
    from tfs_proxy.settings.settings import TABLE

    text = f"unrecognized arguments: {printable(' '.join(unknown))}"
    if "--script" in unknown:
        text += "\nA script is part of an archive: tfs-proxy pack MODEL --script inference.py writes one"
    for flag in (word.partition("=")[0].removeprefix("--") for word in unknown if word.startswith("--")):
        letters = flag.replace("-", "").upper()
        rows = [
            row for row in TABLE if len(letters) >= SHORTEST_WORD and letters in row.variable.replace("_", "")
        ]
        if rows:
            rows.sort(key=lambda row: not row.variable.startswith(PREFERRED))
            settings = "".join(f"\n  {row.variable}: {row.help}" for row in rows[:4])
            paste = f"{rows[0].variable}=... tfs-proxy {command} ..."
            return f"{text}\n--{printable(flag)} is a setting of the environment, as in {paste}{settings}"
    return text


def _report(error: str) -> None:
    """Say why the command ends: as an entry of the log if it logs by entries, else after its name."""
    from tfs_proxy.observe.logs.entry import EntryHandler

    handlers = [handler for handler in logging.getLogger().handlers if isinstance(handler, EntryHandler)]
    for handler in handlers:
        handler.say(error, "error")
    if not handlers:
        print(f"tfs-proxy: {one_entry(error)}", file=sys.stderr)


def command_parser(name: str) -> argparse.ArgumentParser:
    """The parser of one sub-command."""
    module = _module_of(name)
    passes_on = name in OF_THE_IMAGES
    parser = argparse.ArgumentParser(
        prog=f"tfs-proxy {name}",
        description=module.DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        prefix_chars=NO_FLAGS if passes_on else "-",
        add_help=not passes_on,
    )
    # `container` calls another command, and foreign words are looked into for --help.
    parser.set_defaults(main=main, commands=COMMANDS, usage=parser.format_help)
    if passes_on:
        parser.usage = f"{parser.prog} {module.USAGE}"
        parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    else:
        module.add_arguments(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
