"""The command line: sub-commands parse, call and return an exit status; start-up begins here."""

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfs_proxy import __version__
from tfs_proxy.errors import StopServing
from tfs_proxy.setting_values import HIGHEST_PORT
from tfs_proxy.settings import Settings, inherited_environment

if TYPE_CHECKING:
    from socket import socket

log = logging.getLogger("tfs_proxy")

INTERRUPTED = 128 + signal.SIGINT

SERVE_HELP = """\
Serve a TensorFlow model archive at /invocations, as Amazon SageMaker does.

MODEL is a model.tar.gz, a folder or an s3:// address of either. Without it, SAGEMAKER_MODEL_URI is
served, else /opt/ml/model. Settings come from the environment; the README lists them all.
"""


CHECK_HELP = """\
Say what would be served from MODEL, as start-up does, and import code/inference.py, in a process of
its own and in this environment: requirements.txt is not installed.

With --request, the request goes through code/inference.py, or through the default conversion if there
is none. The model server is a fake one that answers zeros of the signatures' shapes.

Exit status: 0; 2 if MODEL or a setting can't be used, or, with --strict, if there is a warning; 3 if
the script can't be used or imported, or the request was answered with an error.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command; returns its exit status."""
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        if words[:1] == ["container"]:
            words = _container(words[1:])
        if words[:1] == ["model-server"]:  # its flags are TensorFlow Serving's, parsed there
            from tfs_proxy.embedded import main as model_server

            return model_server(words[1:])
        # Modules of other commands are not loaded for `serve`, which must listen at once.
        if words[:1] == ["transform"]:
            return _transform(words[1:])
        if words[:1] == ["pipeline"]:
            return _pipeline(words[1:])
        if words[:1] == ["tensorflow-serving"]:
            return _tensorflow_serving(words[1:])
        arguments = parser().parse_args(words)
        return int(arguments.run(arguments))
    except StopServing as error:
        print(f"tfs-proxy: {error}", file=sys.stderr)
        return error.exit_status


def parser() -> argparse.ArgumentParser:
    """All sub-commands with their help."""
    root = argparse.ArgumentParser(prog="tfs-proxy", description="Serve TensorFlow models as SageMaker does.")
    root.add_argument("--version", action="version", version=f"tfs-proxy {__version__}")
    _add_commands(root)
    return root


def _add_commands(root: argparse.ArgumentParser) -> tuple[str, ...]:
    """Every sub-command; their names."""
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    _add_serve(commands)
    commands.add_parser(
        "tensorflow-serving",
        help="serve as the image tensorflow/serving does, with its flags, variables and ports",
        add_help=False,
    )
    commands.add_parser("pipeline", help="serve an inference pipeline of several archives", add_help=False)
    commands.add_parser("transform", help="run a batch transform job", add_help=False)
    _add_check(commands)
    commands.add_parser(
        "model-server",
        help="the embedded model server: flags and API of tensorflow_model_server",
        add_help=False,
    )
    commands.add_parser(
        "container",
        help="the images' entry point: any of these commands, flags of tensorflow_model_server, or a program",
        add_help=False,
    )
    return tuple(commands.choices)


def _add_serve(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    serve = commands.add_parser(
        "serve",
        help="serve a model archive over HTTP",
        description=SERVE_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serve.add_argument("model", nargs="?", metavar="MODEL", help="model.tar.gz, folder or s3:// address")
    _add_serving_flags(serve)
    serve.set_defaults(run=_serve)


def _add_serving_flags(command: argparse.ArgumentParser) -> None:
    command.add_argument("--port", type=_port, help="port to listen on, 0 for a free one (default: 8080)")
    command.add_argument("--host", default="0.0.0.0", help="address to listen on (default: %(default)s)")  # noqa: S104
    command.add_argument(
        "--model-server",
        default="auto",
        metavar="auto|embedded|PATH",
        help="auto takes tensorflow_model_server from PATH, else the embedded server (default: auto)",
    )


def _container(words: Sequence[str]) -> list[str]:
    """The command of ours that a container's words mean; another program takes this process over."""
    from tfs_proxy.entry import command_of, run_program

    commands = _add_commands(argparse.ArgumentParser())
    command = command_of(words, commands)
    if command is None:
        run_program(words, commands)
    return command


def _tensorflow_serving(words: Sequence[str]) -> int:
    _heed_stop_signals()
    if {"--help", "--version"} & set(words):
        from tfs_proxy.entry import run_program
        from tfs_proxy.supervisor.model_server import AUTO, program

        run_program([*program(AUTO), *words])
    settings, listener = _listen(argparse.Namespace(port=None, host="0.0.0.0"))  # noqa: S104
    settings = replace(settings, grpc_port=None, instance_count=1)  # the model server has its own gRPC port
    import asyncio

    from tfs_proxy.supervisor.run import Request, serve

    request = Request(None, "auto", inherited_environment(), tuple(words))
    return asyncio.run(serve(settings, listener, request))


def _pipeline(words: Sequence[str]) -> int:
    _heed_stop_signals()
    from tfs_proxy.pipeline.flags import HELP, add_flags, request_of

    own = argparse.ArgumentParser(
        prog="tfs-proxy pipeline", description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_flags(own)
    _add_serving_flags(own)
    arguments = own.parse_args(words)
    request = request_of(arguments, inherited_environment())
    settings, listener = _listen(arguments)
    import asyncio

    from tfs_proxy.pipeline.run import serve

    return asyncio.run(serve(settings, listener, request))


def _transform(words: Sequence[str]) -> int:
    from tfs_proxy.transform.flags import HELP, add_flags, request_of
    from tfs_proxy.transform.run import run, tune

    own = argparse.ArgumentParser(
        prog="tfs-proxy transform", description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_flags(own)
    arguments = own.parse_args(words)
    logging.basicConfig(level="INFO", format="tfs-proxy: %(message)s", stream=sys.stderr)
    logging.getLogger("botocore").setLevel(logging.WARNING)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, it ends a run in order
    try:
        request = request_of(arguments, inherited_environment())
        return tune(request) if arguments.tune else run(request)
    except KeyboardInterrupt:
        print("tfs-proxy: stopped; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED


def _add_check(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    check = commands.add_parser(
        "check",
        help="say what would be served, import the script, and try it on a request",
        description=CHECK_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.add_argument("model", nargs="?", metavar="MODEL", help="model.tar.gz, folder or s3:// address")
    check.add_argument("--request", metavar="FILE", type=Path, help="body of a request to answer; - is stdin")
    check.add_argument("--content-type", metavar="TYPE", help="its Content-Type (default: none)")
    check.add_argument("--accept", metavar="TYPE", help="its Accept (default: none)")
    check.add_argument("--custom-attributes", metavar="TEXT", help="its custom attributes (default: none)")
    check.add_argument("--strict", action="store_true", help="end with 2 if there is a warning")
    check.set_defaults(run=_check)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"{text} is no port: take a number from 0 to {HIGHEST_PORT}")
    return int(text)


def _heed_stop_signals() -> None:
    """End with 0 at SIGTERM or SIGHUP from now on, until a run loop takes over."""
    from tfs_proxy.supervisor.stop_signals import stop_signals

    # As PID 1 of a container, a process without a handler does not even notice SIGTERM. Nothing has begun
    # that must be ended in order; an exception could be swallowed by what is being imported.
    for number in stop_signals():
        if number is not signal.SIGINT:  # Python's own handler ends it
            signal.signal(number, lambda _number, _frame: os._exit(0))


def _listen(arguments: argparse.Namespace) -> "tuple[Settings, socket]":
    """Settings, and the open port: the platform waits 250 ms for it (contract 1.4), so it comes first."""
    settings = Settings.from_env()
    if arguments.port is not None:
        settings = replace(settings, port=arguments.port)
    from tfs_proxy.supervisor.sockets import listen

    listener = listen(arguments.host, settings.port)
    logging.basicConfig(
        level=settings.gunicorn_loglevel.upper(), format="tfs-proxy: %(message)s", stream=sys.stderr
    )
    logging.getLogger("botocore").setLevel(logging.WARNING)  # it announces where credentials came from
    return settings, listener


def _serve(arguments: argparse.Namespace) -> int:
    _heed_stop_signals()
    settings, listener = _listen(arguments)
    import asyncio

    from tfs_proxy.supervisor.run import Request, serve

    request = Request(arguments.model, arguments.model_server, inherited_environment())
    return asyncio.run(serve(settings, listener, request))


def _check(arguments: argparse.Namespace) -> int:
    from tfs_proxy.trial import Sample, check

    sample = None
    if arguments.request is not None:
        sample = Sample(
            arguments.request, arguments.content_type, arguments.accept, arguments.custom_attributes
        )
    environ = inherited_environment()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what it started and wrote goes
    try:
        return check(arguments.model, sample, Settings.from_env(), environ, strict=arguments.strict)
    except KeyboardInterrupt:
        print("tfs-proxy: stopped", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
