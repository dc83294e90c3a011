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

from msgspec import Struct

from tfs_proxy import __version__
from tfs_proxy.values.errors import StopServing
from tfs_proxy.values.names import one_entry, printable, similar
from tfs_proxy.wire.shortages import ending


class Command(Struct, frozen=True):
    """A sub-command, in a module of `tfs_proxy.commands`.

    The module has ``DESCRIPTION``, ``add_arguments(parser)`` and ``run(arguments)``, which returns the exit
    status. If ``foreign_flags``, they are another program's, and the parser passes all words on.
    """

    module: str
    help: str
    foreign_flags: bool = False


COMMANDS = {
    "serve": Command("serve", "serve a model archive over HTTP, or several in a row"),
    "tensorflow-serving": Command(
        "tensorflow_serving",
        "serve as the image tensorflow/serving does, with its flags, variables and ports",
        foreign_flags=True,
    ),
    "endpoint": Command("endpoint", "SageMaker's endpoints on this machine, for boto3 and the SDKs"),
    "transform": Command("transform", "run a batch transform job"),
    "init": Command("init", "write a new script, its test and its README"),
    "pack": Command("pack", "write a model.tar.gz from a SavedModel, or from a .keras or .h5 file"),
    "check": Command("check", "report what would be served, import the script, and try it on a request"),
    "ask": Command("ask", "send a file to a container, and print the answer or a table of latencies"),
    "settings": Command("settings", "list the variables that configure a run, with their defaults"),
    "model-server": Command(
        "model_server",
        "the embedded model server: flags and API of tensorflow_model_server",
        foreign_flags=True,
    ),
    "container": Command(
        "container",
        "the images' entry point: any of these commands, flags of tensorflow_model_server, or a program",
        foreign_flags=True,
    ),
}

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
    root = root_parser()
    if words and words[0] not in COMMANDS and not words[0].startswith("-"):
        close = "serve A B" if words[0] == "pipeline" else similar(words[0], COMMANDS)
        hint = f"did you mean {close}?" if close else "tfs-proxy --help lists them."
        root.error(f"{printable(words[0])} is not a command: {hint}")
    arguments = root.parse_args(words)
    if arguments.command is None:
        root.print_help(sys.stderr)
        return 2
    # Only the module of this command is imported: `serve` must listen at once.
    module = importlib.import_module(f"tfs_proxy.commands.{COMMANDS[arguments.command].module}")
    parser = command_parser(arguments.command)
    parsed, unknown = parser.parse_known_args(arguments.words)
    if unknown:
        parser.error(_unknown(arguments.command, unknown))
    return int(module.run(parsed))


def _unknown(command: str, unknown: Sequence[str]) -> str:
    """Name the words that are too many, and the settings that flags among them may mean."""
    from tfs_proxy.settings.settings import TABLE

    text = f"unrecognized arguments: {printable(' '.join(unknown))}"
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


def root_parser() -> argparse.ArgumentParser:
    """The parser that tells the sub-commands apart, without importing them."""
    root = argparse.ArgumentParser(prog="tfs-proxy", description="Serve TensorFlow models as SageMaker does.")
    root.add_argument("--version", action="version", version=f"tfs-proxy {__version__}")
    names = root.add_subparsers(metavar="COMMAND", dest="command")
    for name, command in COMMANDS.items():
        words = names.add_parser(name, help=command.help, prefix_chars=NO_FLAGS, add_help=False)
        words.add_argument("words", nargs=argparse.REMAINDER)
    return root


def command_parser(name: str) -> argparse.ArgumentParser:
    """The parser of one sub-command."""
    command = COMMANDS[name]
    module = importlib.import_module(f"tfs_proxy.commands.{command.module}")
    parser = argparse.ArgumentParser(
        prog=f"tfs-proxy {name}",
        description=module.DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        prefix_chars=NO_FLAGS if command.foreign_flags else "-",
        add_help=not command.foreign_flags,
    )
    # `container` calls another command, and foreign words are looked into for --help.
    parser.set_defaults(main=main, commands=tuple(COMMANDS), usage=parser.format_help)
    module.add_arguments(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
