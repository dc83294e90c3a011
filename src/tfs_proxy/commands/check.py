"""``tfs-proxy check``: the start-up report, the script's import, and one request with a fake model server."""

import argparse
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from tfs_proxy.commands.arguments import (
    add_attribute_arguments,
    interruptible,
    read_requests,
)
from tfs_proxy.data.capture import CapturedRequest
from tfs_proxy.model.discover import discover, unreadable
from tfs_proxy.model.report.prepare import Prepared, prepare
from tfs_proxy.model.report.served import Served
from tfs_proxy.model.report.startup import server_warnings
from tfs_proxy.model.script_syntax import HEALTH, form_of, read_ast_names
from tfs_proxy.model.stores import is_remote
from tfs_proxy.run.host.workspace import temporary_workspace
from tfs_proxy.run.many_models.archives import Listing, ModelFolder, model_folder
from tfs_proxy.run.programs.packages import brings_packages
from tfs_proxy.serving.upstream.fake_server import ModelCall
from tfs_proxy.settings.settings import Settings, inherited_environment
from tfs_proxy.tools.pack.lay_out import laid_out
from tfs_proxy.tools.pack.pack import readable, try_script
from tfs_proxy.values.errors import (
    ArchiveError,
    DiscoveryError,
    NoModelFound,
    ScriptLoadError,
    SettingsError,
    TfsProxyError,
)
from tfs_proxy.values.layout import ModelLayout, Workspace
from tfs_proxy.values.names import printable

CHECK_FAILED = 1


def check_many(location: str, settings: Settings, *, strict: bool) -> int:
    """Prints a line for each model below ``location``, and the number of failures; returns the exit status.

    ``location`` is a folder or an address of a store. If ``strict``, an archive with a warning fails. Raises
    ArchiveError, SettingsError if there is nothing to check.
    """
    settings = settings.with_values(multi_model=False)  # each archive is checked as if it were the only one
    models = model_folder(location)
    listing = models.listing()
    folders = {} if is_remote(location) else _folders(Path(location), listing, settings.program)
    names = sorted([*_archives(listing, folders), *folders])
    if not names:
        raise ArchiveError(f"There is no *.tar.gz below {printable(location)}.")
    failed = 0
    for number, name in enumerate(names, start=1):
        shown = printable(name)
        print(f"tfs-proxy: checking {shown} ({number} of {len(names)})", file=sys.stderr, flush=True)
        try:
            url = folders.get(name) or _archive(name, models, listing)
            print(f"ok {shown}: {_finding(url, settings, strict=strict)}", flush=True)
        except TfsProxyError as error:
            failed += 1
            print(f"fails {shown}: {_one_line(str(error))}", flush=True)
    print(f"{failed} of {len(names)} would fail.")
    return CHECK_FAILED if failed else 0


def _folders(root: Path, listing: Listing, program: str) -> dict[str, str]:
    """Unpacked models directly below ``root``: paths by name, which ends with a slash.

    A folder with archives is not a model, unless they are below the ``code/`` of its script ``program``.
    """
    with_archives = {path.partition("/")[0] for paths in listing.paths.values() for path in paths}
    try:
        folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError as error:
        raise ArchiveError(unreadable(root, error)) from error
    return {
        f"{folder.name}/": str(folder)
        for folder in folders
        if ModelLayout(folder, program).script.is_file()
        or (folder.name not in with_archives and _holds_model(folder))
    }


def _holds_model(folder: Path) -> bool:
    try:
        discover(folder)
    except NoModelFound:
        return False
    except DiscoveryError:
        return True  # it exists and can't be served: its line says why
    return True


def _archives(listing: Listing, folders: dict[str, str]) -> Iterator[str]:
    """Archives by name, or by path if the name is invalid; without packages of unpacked models."""
    of_models = tuple(folders)
    for name, paths in listing.paths.items():
        if not all(path.startswith(of_models) for path in paths):
            yield name
    yield from (path for path in listing.unnamed if not path.startswith(of_models))


def _archive(name: str, models: ModelFolder, listing: Listing) -> str:
    """The path or address of an archive. Raises BadInput if it can't be loaded by this name."""
    if name in listing.unnamed:
        raise ArchiveError(listing.unnamed[name])
    url = models.url_of(name)
    if url is None:
        raise ArchiveError("It is not there any more.")
    return url


def _finding(url: str, settings: Settings, *, strict: bool) -> str:
    """Says in one line what would be served from the archive.

    Raises what `prepare` raises, ScriptLoadError for a script that can't be used, and ArchiveError for a
    warning if ``strict``.
    """
    with temporary_workspace(settings.home, "tfs-proxy-check-") as workspace:
        prepared = prepare(url, settings, workspace, inherited_environment())
        warnings, notes = _tried(prepared, settings, workspace)
    faults = warnings if strict else prepared.load_faults
    if faults:
        raise ArchiveError(" ".join(faults))
    return _one_line("; ".join([prepared.one_line, *warnings, *notes]))


def _tried(prepared: Prepared, settings: Settings, workspace: Workspace) -> tuple[list[str], list[str]]:
    """Imports the script, and calls its ``health(context)`` once; returns warnings, and what is none.

    Raises ScriptLoadError for a script that can't be used.
    """
    layout = prepared.served.layout
    warnings = [*prepared.warnings, *server_warnings(prepared.served)]
    if missing := try_script(prepared, workspace):
        return warnings, [f"Not checked: {missing}"]
    names = read_ast_names(layout.script)
    if names is None or HEALTH not in names.names:
        return warnings, []
    from tfs_proxy import testing

    try:
        with testing.load(layout.root, settings=settings) as script:
            fault = script.health()
    except ScriptLoadError as error:
        return warnings, [f"Not checked: {form_of(HEALTH)}, since {readable(error, workspace)}"]
    if fault is None:
        return warnings, []
    return ([*warnings, f"Warning: {fault}."], []) if fault else (warnings, [f"{form_of(HEALTH)} succeeds."])


def _one_line(text: str) -> str:
    return " ".join(text.split())


if TYPE_CHECKING:
    from tfs_proxy.testing import LoadedScript

FAILED = ScriptLoadError.exit_status
WARNED = 2
SHOWN_CHARACTERS = 2000

DESCRIPTION = """\
Report what would be served from MODEL, as start-up does, and import code/inference.py, in a process of its
own. This environment is used unchanged: requirements.txt is not installed. If it defines health(context),
that is called once, after init or model_fn; a failure is a warning.

With --request, code/inference.py answers the request, or the default conversion if there is no script.
A fake model server stands behind them; it answers zeros in the shapes of the signatures. It refuses sizes
that a signature does not declare; serve passes TensorFlow Serving's form on: a model may take any shape.

With --openapi, standard output gets the document that GET /openapi.json would answer, and the report goes to
standard error.

With --multi-model, every archive below FOLDER is checked so, one after the other: a line for each says what
would be served, or why it fails.

Exit status: 0; 2 if MODEL or a setting can't be used, if a model would not load, or, with --strict, if
there is a warning; 3 if the script can't be used or imported, or if the answer to the request is an error.
With --multi-model, 1 if any archive fails.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL", help="model.tar.gz, or what else serve takes")
    parser.add_argument(
        "--multi-model",
        metavar="FOLDER",
        help="check every *.tar.gz below FOLDER or a prefix (s3://, gs://, az://), and every folder in it "
        "that holds a model",
    )
    parser.add_argument(
        "--request",
        metavar="FILE",
        type=Path,
        help="body of a request to answer, or a file of data capture with many; - is stdin",
    )
    parser.add_argument(
        "--openapi",
        action="store_true",
        help="print the OpenAPI document of what would be served, instead of the report",
    )
    parser.add_argument("--content-type", metavar="TYPE", help="its type (default: by the ending of FILE)")
    parser.add_argument("--accept", metavar="TYPE", help="its Accept (default: none)")
    add_attribute_arguments(parser)
    parser.add_argument(
        "--strict",
        action="store_true",
        help="end with 2 if there is a warning; with --multi-model, an archive with a warning fails",
    )


def run(arguments: argparse.Namespace) -> int:
    with interruptible():
        settings = Settings.from_env()
        if arguments.openapi and (arguments.multi_model or arguments.request):
            raise SettingsError("--openapi takes neither --multi-model nor --request.")
        if arguments.multi_model is None:
            attributes = ",".join(arguments.custom_attributes) or None
            requests = read_requests(arguments.request, arguments.content_type, attributes)
            report = sys.stderr if arguments.openapi else sys.stdout
            with temporary_workspace(settings.home, "tfs-proxy-check-") as workspace:
                model = laid_out(arguments.model or settings.model, workspace, settings, threading.Event())
                prepared = prepare(model, settings, workspace, inherited_environment())
                print(*prepared.report, sep="\n", file=report)
                warnings, notes = _tried(prepared, settings, workspace)
                for line in [*warnings, *notes]:
                    print(line, file=report)
                try:
                    status = _print_document(prepared.served, settings) if arguments.openapi else 0
                    status = _try(arguments, requests, prepared.served, settings) if requests else status
                except ScriptLoadError as error:
                    raise readable(error, workspace) from None
            fails = prepared.load_faults or (arguments.strict and warnings)
            return WARNED if fails and not status else status
        if arguments.model or arguments.request:
            raise SettingsError("--multi-model takes neither MODEL nor --request: check that archive alone.")
        return check_many(arguments.multi_model, settings, strict=arguments.strict)


def _try(
    arguments: argparse.Namespace, requests: Sequence[CapturedRequest], served: Served, settings: Settings
) -> int:
    from tfs_proxy import testing

    with _explained(served.layout), testing.load(served.layout.root, settings=settings) as script:
        return max([_try_one(arguments, request, served, script) for request in requests])


def _print_document(served: Served, settings: Settings) -> int:
    """Prints what ``GET /openapi.json`` would answer; returns the exit status."""
    from tfs_proxy import testing

    with _explained(served.layout), testing.load(served.layout.root, settings=settings) as script:
        reply = script.openapi()
    print(reply.text)
    return FAILED if reply.status >= HTTPStatus.BAD_REQUEST else 0


def _try_one(
    arguments: argparse.Namespace, request: CapturedRequest, served: Served, script: "LoadedScript"
) -> int:
    content_type = request.content_type
    earlier = len(script.calls)
    began = time.perf_counter()
    reply = script.post(request.body, content_type, arguments.accept, request.custom_attributes)
    milliseconds = (time.perf_counter() - began) * 1000
    calls = "; ".join(_describe_calls(script.calls[earlier:]))
    print(f"Request: {arguments.request}, {content_type or 'no Content-Type'}, {len(request.body)} bytes")
    if served.models:
        print(f"Model server (a fake one, which answers zeros): {calls or 'not called'}")
    broken = ", broken off by an error" if reply.broken else ""
    print(
        f"Answer: {reply.status} {reply.content_type}, {len(reply.body)} bytes, {milliseconds:.1f} ms{broken}"
    )
    print(_shown(reply.body))
    return FAILED if reply.broken or reply.status >= HTTPStatus.BAD_REQUEST else 0


@contextmanager
def _explained(layout: ModelLayout) -> Iterator[None]:
    """Adds the likely reason if the script can't be imported."""
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
