"""Makes a model's first requests quick: makes requests, tries them, and records them in its versions."""

import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.model.discover import DiscoveredModel
from tfs_proxy.model.progress import ProgressLog
from tfs_proxy.model.report.prepare import Prepared, prepare
from tfs_proxy.model.saved_model import read_saved_model
from tfs_proxy.model.write import write_archive
from tfs_proxy.run.host.workspace import temporary_workspace
from tfs_proxy.serving.upstream.binary import request_message
from tfs_proxy.settings.settings import Settings, inherited_environment
from tfs_proxy.tools.pack.lay_out import mirror
from tfs_proxy.tools.pack.options import WarmedVersion, WarmupOptions
from tfs_proxy.tools.pack.trial_server import TrialServer, trial_server
from tfs_proxy.tools.pack.warmup_requests import RecordedRequest, batch_sizes, file_of, made_up, of_clients
from tfs_proxy.values.errors import ArchiveError, BadInput, DiscoveryError, SettingsError
from tfs_proxy.values.layout import ARCHIVE_NAME, WARMUP_FILE, Workspace
from tfs_proxy.values.names import printable
from tfs_proxy.values.signature import DEFAULT_SIGNATURE, Signature, Target
from tfs_proxy.wire.error_body import error_text

REPEATS = 20
"""Number of requests whose median the first ones are compared with."""


class _Version(Struct, frozen=True):
    model: str
    number: int
    folder: Path
    signatures: Mapping[str, Signature]
    requests: Sequence[RecordedRequest]

    def signature_of(self, request: RecordedRequest) -> Signature:
        return self.signatures[request.target.signature or DEFAULT_SIGNATURE]


def write_warmup(
    prepared: Prepared, workspace: Workspace, options: WarmupOptions
) -> tuple[WarmedVersion, ...]:
    """Records requests in the versions of ``prepared``, whose folders must belong to the caller.

    Each request has been answered by a model server, and each version has been loaded with them. Raises
    SettingsError for requests that can't be made or are refused, DiscoveryError without a model to warm up,
    and ModelLoadError if a version does not load with them.
    """
    versions = tuple(_versions(prepared, options))
    if not versions:
        raise DiscoveryError("There is no SavedModel to warm up: a script that is the model warms itself up.")
    environ = dict(inherited_environment())
    with trial_server(prepared, workspace, environ, warms_up=False) as server:
        cold = [_first_ms(server, version) for version in versions]
        for version in versions:
            _try_all(server, version)
    write_files({each.folder / WARMUP_FILE: file_of(each.requests, each.signatures) for each in versions})
    with trial_server(prepared, workspace, environ, warms_up=True) as server:
        if server.warmed_versions < len(versions):
            raise SettingsError("The model server did not read the requests: does a flag turn warm-up off?")
        return tuple(
            _measured(server, version, cold_ms) for version, cold_ms in zip(versions, cold, strict=True)
        )


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Writes all files or, if there is no room for all, none; each appears whole.

    Raises ArchiveError if that fails.
    """
    partials = {path: path.with_name(f".{path.name}.partial") for path in contents}
    try:
        for path, partial in partials.items():
            path.parent.mkdir(exist_ok=True)
            with partial.open("wb") as file:
                file.write(contents[path])
                os.fsync(file.fileno())
        for path, partial in partials.items():
            partial.replace(path)
    except OSError as error:
        raise ArchiveError(f"{error.filename or path} can't be written: {error.strerror}.") from error
    finally:
        for partial in partials.values():
            with suppress(OSError):
                partial.unlink()


def _versions(prepared: Prepared, options: WarmupOptions) -> Iterator[_Version]:
    known = {number for model in prepared.served.models for number in model.versions}
    if options.version is not None and options.version not in known:
        there = ", ".join(map(str, sorted(known)))
        raise SettingsError(f"--version {options.version} is not there; existing versions: {there}.")
    clients = _by_model(prepared, options)
    for model in prepared.served.models:
        for number, folder in model.versions.items():
            if options.version in {None, number} and (not options.requests or clients.get(model.name)):
                yield _version(prepared, options, model, number, folder, clients.get(model.name, ()))


def _by_model(prepared: Prepared, options: WarmupOptions) -> Mapping[str, Sequence[RecordedRequest]]:
    by_model: dict[str, list[RecordedRequest]] = {}
    for request in (
        of_clients(options.requests, prepared.served, prepared.settings) if options.requests else ()
    ):
        by_model.setdefault(request.target.model, []).append(request)
    if options.requests and not by_model:
        raise SettingsError("None of the requests asks a model.")
    return by_model


def _version(
    prepared: Prepared,
    options: WarmupOptions,
    model: DiscoveredModel,
    number: int,
    folder: Path,
    clients: Sequence[RecordedRequest],
) -> _Version:
    summary = read_saved_model(folder)
    if summary is None:
        raise DiscoveryError(f"{folder} has no saved_model.pb, whose signatures requests are made from.")
    signatures = summary.signatures
    target = Target(model.name, version=number)
    if clients:
        requests = [
            replace(each, target=replace(each.target, version=number, label=None)) for each in clients
        ]
    else:
        sizes = options.batch_sizes or batch_sizes(prepared.settings)
        requests = list(made_up(target, folder, signatures, options, sizes))
    return _Version(model.name, number, folder, signatures, requests)


def _first_ms(server: TrialServer, version: _Version) -> float:
    with _refusals(version.requests[0]):
        return _milliseconds(server, version, version.requests[0])


def _try_all(server: TrialServer, version: _Version) -> None:
    for request in version.requests:
        with _refusals(request):
            _milliseconds(server, version, request)


def _measured(server: TrialServer, version: _Version, cold_ms: float) -> WarmedVersion:
    warm_ms = _first_ms(server, version)
    others = [_milliseconds(server, version, version.requests[0]) for _ in range(REPEATS)]
    return WarmedVersion(
        version.model,
        version.number,
        version.folder,
        len(version.requests),
        cold_ms,
        warm_ms,
        statistics.median(others),
    )


def _milliseconds(server: TrialServer, version: _Version, request: RecordedRequest) -> float:
    message = request_message(request.target, request.batch, version.signature_of(request))
    began = time.perf_counter()
    answer = server.calls.predict(server.instance, [message])
    if not answer.ok:
        raise BadInput(error_text(answer.body) or f"status {answer.status}")
    return (time.perf_counter() - began) * 1000


@contextmanager
def _refusals(request: RecordedRequest) -> Iterator[None]:
    """Names the request in the error if the model server refuses it: no version would load with it."""
    try:
        yield
    except BadInput as error:
        origin = request.origin[0].upper() + request.origin[1:]
        raise SettingsError(
            f"{origin} is refused by the model: {error}. Give requests that it takes with --request."
        ) from None


def warm_model(
    model: str, output: Path | None, options: WarmupOptions, settings: Settings
) -> tuple[WarmedVersion, ...]:
    """Records requests in ``model``, a folder, or in ``output``, a copy of the archive ``model``.

    Nothing is written before all was tried. Raises SettingsError for a wrong ``output``, and what `prepare`,
    `write_warmup` and `write_archive` raise.
    """
    folder = Path(model)
    _check_output(model, folder, output)
    with temporary_workspace(settings.home, "tfs-proxy-warmup-") as workspace:
        if output is None:
            mirror(folder, workspace.model)
            model = str(workspace.model)
        prepared = prepare(model, settings, workspace, inherited_environment())
        warmed = write_warmup(prepared, workspace, options)
        if output is None:
            files = [version.folder / WARMUP_FILE for version in warmed]
            write_files({folder / each.relative_to(workspace.model): each.read_bytes() for each in files})
        else:
            writing = ProgressLog(f"Packing {output}")
            write_archive(prepared.served.layout.root, output, writing)
            writing.finish()
    return warmed


def _check_output(model: str, folder: Path, output: Path | None) -> None:
    shown = printable(model)
    if (folder / ARCHIVE_NAME).is_file():
        raise SettingsError(f"{shown} holds {ARCHIVE_NAME}: give its path, and -o FILE for the new one.")
    if folder.is_dir() and output is not None:
        raise SettingsError(f"-o can't be used: {shown} is a folder, which is changed in place.")
    if not folder.is_dir() and output is None:
        raise SettingsError(f"-o FILE is missing: {shown} is an archive, which is left as it is.")
    if output is not None and not output.parent.is_dir():
        raise ArchiveError(f"-o {printable(str(output))} is refused: its folder is not there.")
