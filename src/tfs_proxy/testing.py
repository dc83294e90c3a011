"""For unit tests of an inference.py: load it and call it in milliseconds, without servers or TensorFlow.

The model server is a fake one that answers by the SavedModels' signatures; all else is what serves::

    with tfs_proxy.testing.load("model.tar.gz", outputs={"y": [[0.9, 0.1]]}) as script:
        reply = script.post(image, content_type="image/png")
        assert (reply.status, reply.json) == (200, {"label": 0})
"""

import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

from tfs_proxy.data.formats.untyped import sent_body
from tfs_proxy.model.discover import DiscoveredModel
from tfs_proxy.model.fetch import fetch
from tfs_proxy.model.report.served import body_limits, doors_of, look_into
from tfs_proxy.model.saved_model import read_saved_model
from tfs_proxy.model.script_syntax import HANDLERS, SCRIPT_MODEL_FUNCTIONS, read_ast_names
from tfs_proxy.serving.script.load import load_script, module_name
from tfs_proxy.serving.script.script_model import load_script_model
from tfs_proxy.serving.upstream.fake_server import FakeModelServer, FakeOutputs, ModelCall, Versions
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import Deployment, TimeLimits
from tfs_proxy.values.layout import Workspace
from tfs_proxy.values.signature import PREDICT_METHOD, Signature, TensorSpec
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES
from tfs_proxy.wire.media_types import JSON
from tfs_proxy.wire.routes import INVOCATIONS, OPENAPI
from tfs_proxy.worker.app import ContainerApp, create_app

__all__ = ["LoadedScript", "ModelCall", "Reply", "Signature", "TensorSpec", "load", "signature"]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. ``headers`` have lower-case names; ``pieces`` are what a stream was made of.

    ``broken`` says that a streamed answer ended in an error, so that a client would see it break off.
    """

    status: int
    headers: Mapping[str, str]
    pieces: Sequence[bytes] = field(repr=False)
    broken: bool = False

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self.pieces)

    @property
    def text(self) -> str:
        """The body as UTF-8."""
        return self.body.decode()

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)

    @property
    def content_type(self) -> str:
        """The body's media type."""
        return self.headers.get("content-type", "")


class LoadedScript:
    """A script, or a model without one, behind a `FakeModelServer`."""

    def __init__(self, app: ContainerApp, model_server: FakeModelServer) -> None:
        self._app = app
        self._model_server = model_server

    @property
    def calls(self) -> Sequence[ModelCall]:
        """Calls of the model server so far: ``target`` and ``inputs``."""
        return self._model_server.calls

    def post(
        self,
        body: object = b"",
        content_type: str | None = JSON,
        accept: str | None = None,
        custom_attributes: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """``POST /invocations``, with everything that happens between the HTTP server and the answer.

        A dict, a list or an object of a class is sent as JSON. Raises TypeError for what JSON can't carry.
        """
        named = {"Content-Type": content_type, "Accept": accept, CUSTOM_ATTRIBUTES: custom_attributes}
        sent = {name: value for name, value in named.items() if value is not None}
        data = sent_body(body, content_type)
        return _call(self._app, _environ("POST", INVOCATIONS.path, data, {**sent, **(headers or {})}))

    def health(self) -> str | None:
        """Call the script's ``health(context)`` once: why it can't serve, or ""; None if it has none."""
        return None if self._app.health is None else self._app.health.once()

    def openapi(self) -> Reply:
        """``GET /openapi.json``: what is served, and what the script says of its bodies."""
        return _call(self._app, _environ("GET", OPENAPI.path, b"", {}))


@contextlib.contextmanager
def load(
    model: str | Path,
    *,
    outputs: FakeOutputs = None,
    signatures: Mapping[str, Signature] | Signature | None = None,
    settings: Settings | None = None,
) -> Iterator[LoadedScript]:
    """Load what ``tfs-proxy serve MODEL`` would serve, with a fake model server behind it.

    ``model`` is an archive or a folder with SavedModels and ``code/inference.py``, or the path of an
    inference.py alone: then ``signatures`` says what the model ``model`` has. ``outputs`` are the
    model server's answer by output name, or a function that makes them of arrays by input name;
    without them it is zeros. A script with ``model_fn`` is the model itself and needs none of them.
    At the end the script's ``close()`` has run, and its imports are undone.

    Raises what the start would: ArchiveError, DiscoveryError, ScriptLoadError.
    """
    path = Path(model)
    settings = Settings.from_env() if settings is None else settings
    with tempfile.TemporaryDirectory(prefix="tfs-proxy-test-") as folder:
        alone = path.suffix == ".py"
        contents = (
            _script_alone(path.absolute(), signatures) if alone else _archive(path, Path(folder), settings)
        )
        with _undone_imports(contents.script):
            model_server = FakeModelServer(contents.models, outputs)
            with contextlib.closing(_app(model_server, contents, settings)) as app:
                yield LoadedScript(app, model_server)


@dataclass(frozen=True, slots=True)
class _Contents:
    """Parts of an archive, or of a script alone, that an application is made of."""

    models: Mapping[str, Versions]
    """Signatures by version, by model name."""

    default: str
    """Name of the model for requests that name none; "" without models."""

    script: str | None
    """Path of the script; None without one."""

    import_paths: tuple[str, ...]
    """Folders that the script's imports may come from; the first wins."""

    script_model: str | None
    """Folder of an archive whose script is the model itself; else None."""

    model_dir: str
    """Folder in which the script looks for its own files."""

    graph_folders: Mapping[str, str] = field(default_factory=dict)
    """Folder of the newest version, by model name."""

    csv_columns: Mapping[str, str] = field(default_factory=dict)
    """Inputs in the order of the columns of CSV, between commas, by model name."""


def _archive(model: str | Path, folder: Path, settings: Settings) -> _Contents:
    served = look_into(fetch(str(model), Workspace(folder)), settings)
    models = {discovered.name: _signatures(discovered) for discovered in served.models}
    return _Contents(
        models,
        served.default_model,
        served.script,
        served.import_paths,
        served.script_model,
        str(served.layout.root),
        served.graph_folders,
        served.csv_columns(settings),
    )


def _script_alone(script: Path, signatures: Mapping[str, Signature] | Signature | None) -> _Contents:
    root = script.parent.parent
    paths = tuple(str(path) for path in (script.parent, script.parent / "lib") if path.is_dir())
    ast_names = read_ast_names(script)
    if (
        signatures is None
        and ast_names
        and ast_names.defined(SCRIPT_MODEL_FUNCTIONS)
        and not ast_names.defined(HANDLERS)
    ):
        return _Contents({}, "", str(script), paths, str(root), str(root))
    return _Contents({"model": {1: _by_name(signatures)}}, "model", str(script), paths, None, str(root))


def signature(inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec]) -> Signature:
    """A ``serving_default`` for predict."""
    return Signature("serving_default", PREDICT_METHOD, inputs, outputs)


def _signatures(model: DiscoveredModel) -> Versions:
    """Signatures of every version; none if there is only a saved_model.pbtxt."""
    read = {version: read_saved_model(path) for version, path in model.versions.items()}
    return {version: summary.signatures if summary else {} for version, summary in read.items()}


def _by_name(signatures: Mapping[str, Signature] | Signature | None) -> Mapping[str, Signature]:
    if isinstance(signatures, Signature):
        return {signatures.name: signatures}
    return signatures or {}


def _app(model_server: FakeModelServer, contents: _Contents, settings: Settings) -> ContainerApp:
    deployment = Deployment(
        default_model=contents.default,
        models={name: tuple(sorted(versions)) for name, versions in contents.models.items()},
        instances=(model_server.choose(),) if contents.models else (),
        script=contents.script,
        import_paths=contents.import_paths,
        bodies=body_limits(contents.script, settings),
        times=TimeLimits(settings.request_timeout_seconds),
        doors=doors_of(contents.script, contents.script_model, settings),
        default_accept=settings.default_accept,
        script_model=contents.script_model,
        version_labels=tuple(settings.version_labels),
        graph_folders=contents.graph_folders,
        csv_columns=contents.csv_columns,
        model_dir=contents.model_dir,
        is_batch=settings.batch,
    )
    if contents.script_model and contents.script:
        script_model = load_script_model(contents.script, contents.import_paths)
        return create_app(deployment, None, script_model)
    loaded = load_script(contents.script, contents.import_paths) if contents.script else None
    return create_app(deployment, model_server, loaded)


@contextlib.contextmanager
def _undone_imports(script: str | None) -> Iterator[None]:
    """Leave sys.path and sys.modules as they were: the next script may have modules of the same names."""
    paths = list(sys.path)
    modules = set(sys.modules)
    no_bytecode = sys.dont_write_bytecode
    try:
        yield
    finally:
        sys.path[:] = paths
        sys.dont_write_bytecode = no_bytecode
        folder = str(Path(script).parent) if script else None
        for name in set(sys.modules) - modules:
            origin = getattr(sys.modules[name], "__file__", None) or ""
            if script and (name == module_name(script) or origin.startswith(f"{folder}/")):
                del sys.modules[name]


def _environ(method: str, path: str, body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    """A WSGI request (PEP 3333)."""
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "CONTENT_LENGTH": str(len(body)),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.input": io.BytesIO(body),
    }
    for name, value in headers.items():
        key = name.upper().replace("-", "_")
        environ[key if key == "CONTENT_TYPE" else f"HTTP_{key}"] = value
    setup_testing_defaults(environ)
    return environ


def _call(app: ContainerApp, environ: dict[str, Any]) -> Reply:
    started: list[tuple[str, list[tuple[str, str]]]] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:  # noqa: ARG001
        started.append((status, headers))

    pieces: list[bytes] = []
    broken = False
    answer = app(environ, start_response)
    try:
        for piece in answer:
            pieces.append(piece)  # noqa: PERF402 - what came before an error stays
    except ConnectionResetError:
        broken = True
    finally:
        close = getattr(answer, "close", None)
        if close is not None:
            close()
    status, headers = started[-1]
    return Reply(int(status[:3]), {name.lower(): value for name, value in headers}, tuple(pieces), broken)
