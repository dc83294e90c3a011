"""``tfs-proxy check``: the start-up report, the script's import, and one request with a fake model server."""

import argparse
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tfs_proxy.errors import ArchiveError, ScriptLoadError
from tfs_proxy.layout import ModelLayout, Workspace
from tfs_proxy.report.prepare import prepare, without_workspace
from tfs_proxy.report.served import Served
from tfs_proxy.script.probe import importable
from tfs_proxy.settings import Settings, inherited_environment
from tfs_proxy.supervisor.host.workspace import temporary_workspace
from tfs_proxy.supervisor.programs.packages import brings_packages
from tfs_proxy.upstream.fake_server import ModelCall

log = logging.getLogger(__name__)

FAILED = ScriptLoadError.exit_status
WARNED = 2
INTERRUPTED = 128 + signal.SIGINT
ERRORS_FROM = 400
SHOWN_CHARACTERS = 2000
STDIN = Path("-")

DESCRIPTION = """\
Report what would be served from MODEL, as start-up does, and import code/inference.py, in a process of its
own. This environment is used as it is: requirements.txt is not installed.

With --request, code/inference.py answers the request, or the default conversion if there is no script.
A fake model server stands behind them; it answers zeros in the shapes of the signatures.

Exit status: 0; 2 if MODEL or a setting can't be used, or, with --strict, if there is a warning; 3 if the
script can't be used or imported, or if the answer to the request is an error.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``check``."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help="model.tar.gz, folder or s3:// address")
    parser.add_argument(
        "--request", metavar="FILE", type=Path, help="body of a request to answer; - is stdin"
    )
    parser.add_argument("--content-type", metavar="TYPE", help="its Content-Type (default: none)")
    parser.add_argument("--accept", metavar="TYPE", help="its Accept (default: none)")
    parser.add_argument("--custom-attributes", metavar="TEXT", help="its custom attributes (default: none)")
    parser.add_argument("--strict", action="store_true", help="end with 2 if there is a warning")


def run(arguments: argparse.Namespace) -> int:
    """Check MODEL; the exit status."""
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


@dataclass(frozen=True, slots=True)
class Sample:
    """A request to try: the file with its body (``-`` is stdin), and its headers, None for those it lacks."""

    file: Path
    content_type: str | None = None
    accept: str | None = None
    custom_attributes: str | None = None

    def read(self) -> bytes:
        """The body; raises ArchiveError if the file can't be read."""
        if self.file == STDIN:
            return sys.stdin.buffer.read()
        try:
            return self.file.read_bytes()
        except OSError as error:
            raise ArchiveError(f"The request {self.file} can't be read: {error.strerror}.") from error


def check(
    model: str | None,
    sample: Sample | None,
    settings: Settings,
    environ: Mapping[str, str],
    *,
    strict: bool = False,
    show: Callable[[str], None] = print,
) -> int:
    """Show the report on ``model``, import its script, and show the answer to ``sample``.

    Returns the exit status, `WARNED` if there are warnings and ``strict`` is set. Raises what start-up
    raises: ArchiveError, DiscoveryError, SettingsError, ScriptLoadError.
    """
    body = sample.read() if sample else b""
    with temporary_workspace(settings.home, "tfs-proxy-check-") as workspace:
        prepared = prepare(model or settings.model, settings, workspace, environ)
        for line in prepared.report:
            show(line)
        warnings = list(prepared.warnings)
        prepared.refuse_unusable_script()
        try:
            missing = _missing_module(prepared.served, settings)
            if missing:
                warnings.append(f"Warning: {missing}")
            for line in warnings:
                show(line)
            status = _try(sample, body, prepared.served, settings, show) if sample else 0
        except ScriptLoadError as error:
            raise _readable(error, workspace) from None
    return WARNED if strict and warnings and not status else status


def _missing_module(served: Served, settings: Settings) -> str | None:
    """Import the script; a warning if it lacks a module that only ``serve`` would install.

    Raises ScriptLoadError if it can't be imported for any other reason.
    """
    if served.script is None:
        return None
    try:
        importable(
            served.script,
            served.import_paths,
            script_model=served.script_model is not None,
            seconds=settings.wait_time_seconds,
        )
    except ScriptLoadError as error:
        if not (error.missing and brings_packages(served.layout)):
            raise
        name = served.layout.script.relative_to(served.layout.root)
        return (
            f"{name} could not be tried, because {error.missing} can't be imported here: only serve "
            f"installs {served.layout.requirements.relative_to(served.layout.root)}."
        )
    return None


def _readable(error: ScriptLoadError, workspace: Workspace) -> ScriptLoadError:
    """``error`` after its traceback, in words that don't name a folder that is gone."""
    if error.report:
        log.error("%s", without_workspace(error.report, workspace))
    return ScriptLoadError(without_workspace(str(error), workspace))


def _try(sample: Sample, body: bytes, served: Served, settings: Settings, show: Callable[[str], None]) -> int:
    from tfs_proxy import testing

    layout = served.layout
    with _explained(layout), testing.load(layout.root, settings=settings) as script:
        began = time.perf_counter()
        reply = script.post(body, sample.content_type, sample.accept, sample.custom_attributes)
        milliseconds = (time.perf_counter() - began) * 1000
        calls = "; ".join(_describe_calls(script.calls))
    show(f"Request: {sample.file}, {sample.content_type or 'no Content-Type'}, {len(body)} bytes")
    if served.models:
        show(f"Model server (a fake one, which answers zeros): {calls or 'not called'}")
    broken = ", broken off by an error" if reply.broken else ""
    show(
        f"Answer: {reply.status} {reply.content_type}, {len(reply.body)} bytes, {milliseconds:.1f} ms{broken}"
    )
    show(_shown(reply.body))
    return FAILED if reply.broken or reply.status >= ERRORS_FROM else 0


@contextmanager
def _explained(layout: ModelLayout) -> Iterator[None]:
    """Add the likely reason if the script can't be imported."""
    try:
        yield
    except ScriptLoadError as error:
        if brings_packages(layout):
            raise ScriptLoadError(
                f"{error} Only serve installs {layout.requirements.name}: check uses this environment.",
                report=error.report,
            ) from error
        raise


def _describe_calls(calls: Sequence[ModelCall]) -> Iterator[str]:
    for call in calls:
        tensors = (f"{name} {array.dtype}{list(array.shape)}" for name, array in call.inputs.items())
        yield f"{call.target.model} {call.target.method}: {', '.join(tensors) or 'features'}"


def _shown(body: bytes) -> str:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return "(not text)"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
