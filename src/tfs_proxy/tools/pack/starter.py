"""Writes the project of ``tfs-proxy init``: reads the model, fills in texts, tries the example, moves all."""

import os
import shutil
import tempfile
import threading
from pathlib import Path

from msgspec import Struct, field

from tfs_proxy.model.discover import ROOT_MODEL_NAME, DiscoveredModel, unreadable
from tfs_proxy.model.graph_inputs import GraphInputs, read_graph_inputs
from tfs_proxy.model.report.prepare import prepare
from tfs_proxy.model.saved_model import read_saved_model
from tfs_proxy.run.host.workspace import temporary_workspace
from tfs_proxy.settings.settings import Settings, inherited_environment
from tfs_proxy.tools.pack.lay_out import laid_out
from tfs_proxy.tools.pack.starter_texts import (
    ExampleRequest,
    example_request,
    readme_text,
    requirements_text,
    script_test_text,
    script_text,
    typed_script_text,
)
from tfs_proxy.values.errors import ArchiveError, DiscoveryError, SettingsError
from tfs_proxy.values.layout import ModelLayout, Workspace
from tfs_proxy.values.names import printable
from tfs_proxy.values.signature import DEFAULT_SIGNATURE, PREDICT_METHOD, Signature, TensorSpec

PLACEHOLDER = Signature(
    DEFAULT_SIGNATURE,
    PREDICT_METHOD,
    {"x": TensorSpec("x", "DT_FLOAT", (None, 3))},
    {"y": TensorSpec("y", "DT_FLOAT", (None, 2))},
)
"""The signature for scripts that are written without a model."""


class StarterModel(Struct, frozen=True):
    """The model that a script is written for; ``found`` has its versions, and is None without a model."""

    name: str = ROOT_MODEL_NAME
    signature: Signature = PLACEHOLDER
    found: DiscoveredModel | None = None
    graph: GraphInputs = field(default_factory=GraphInputs)


def read_model(model: str, workspace: Workspace, settings: Settings) -> StarterModel:
    """The default model of an archive, a folder or a model file, unpacked into ``workspace`` if need be.

    Raises what `laid_out` and `prepare` raise, and DiscoveryError if there is no signature to write for.
    """
    source = laid_out(model, workspace, settings, threading.Event())
    served = prepare(source, settings, workspace, inherited_environment()).served
    if not served.models:
        raise DiscoveryError(
            f"{printable(model)} has no model but its script: run init without --model to write another."
        )
    found = next(each for each in served.models if each.name == served.default_model)
    graph = read_graph_inputs(found.versions[max(found.versions)])
    return StarterModel(found.name, _signature(found), found, graph)


def _signature(model: DiscoveredModel) -> Signature:
    """The default signature. Raises DiscoveryError if there is none, or it is not predict's."""
    summary = read_saved_model(model.versions[max(model.versions)])
    signatures = summary.signatures if summary else {}
    signature = signatures.get(DEFAULT_SIGNATURE)
    if signature is None or signature.method != PREDICT_METHOD:
        known = ", ".join(map(printable, signatures)) or "none that can be read"
        raise DiscoveryError(
            f"The model {model.name} has no signature {DEFAULT_SIGNATURE} for predict (it has {known}): "
            "run init without --model, and name a signature in inference.py by tfs_proxy.Request."
        )
    return signature


def move_all(made: Path, folder: Path) -> tuple[Path, ...]:
    """Moves each file below ``made`` to the same place below ``folder``, on the same disk; their new paths.

    Raises SettingsError if one exists already, or a file is in the way, and OSError; then no file is new.
    """
    names = sorted(path.relative_to(made) for path in made.rglob("*") if not path.is_dir())
    for name in names:
        in_the_way = [parent for parent in (folder / name).parents if parent.exists() and not parent.is_dir()]
        for path in (*in_the_way, *filter(os.path.lexists, [folder / name])):
            raise SettingsError(
                f"{printable(str(path))} exists already, and init overwrites nothing: nothing was written. "
                "Move it away, or name another folder."
            )
    moved: list[Path] = []
    try:
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).rename(folder / name)
            moved.append(folder / name)
    except BaseException:
        for path in moved:
            path.unlink()
        raise
    return tuple(names)


class Starter(Struct, frozen=True):
    """The project that `init` has written: folder, files, model, and the example request."""

    folder: Path
    files: tuple[Path, ...]
    model: StarterModel
    request: ExampleRequest


def init(folder: Path, model: str | None, settings: Settings, *, typed: bool = False) -> Starter:
    """Write a script, its test, requirements, README and an example request into ``folder``.

    With a ``model``, whatever `serve` takes, they are made for its default model, which is copied into
    ``folder`` unless it is there. Raises what `read_model` and `example_request` raise, SettingsError for a
    folder that can't be used, ArchiveError for files that can't be read or written; then nothing is written.
    """
    folder = folder.absolute()
    if folder.exists() and not folder.is_dir():
        raise SettingsError(
            f"{printable(str(folder))} is a file, and init overwrites nothing: name another folder."
        )
    parent = _where_files_are_made(folder)
    shown = printable(str(parent))
    if not parent.is_dir():
        raise SettingsError(f"There is no folder {shown} to make {printable(folder.name)} in: make it first.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise SettingsError(f"{shown} can't be written to: name another folder.")
    with temporary_workspace(settings.home, "tfs-proxy-init-") as workspace:
        known = StarterModel() if model is None else read_model(model, workspace, settings)
        try:
            text = typed_script_text(known.signature) if typed else script_text(known.signature)
            return _write(folder, known, settings, text)
        except OSError as error:
            path = Path(error.filename) if isinstance(error.filename, str) else folder
            raise ArchiveError(printable(unreadable(path, error))) from error


def _where_files_are_made(folder: Path) -> Path:
    """A temporary folder on the same disk, so that files need not be copied."""
    return folder if folder.is_dir() else folder.parent


def _write(folder: Path, model: StarterModel, settings: Settings, text: str) -> Starter:
    with tempfile.TemporaryDirectory(prefix=".tfs-proxy-init-", dir=_where_files_are_made(folder)) as made:
        new = Path(made)
        layout = ModelLayout(new)
        layout.code.mkdir()
        layout.script.write_text(text)
        layout.requirements.write_text(requirements_text())
        request = example_request(layout.script, model.signature, settings, model.graph)
        (new / request.file_name).write_bytes(request.body)
        (new / "tests").mkdir()
        (new / "tests" / "test_inference.py").write_text(script_test_text(model.signature, request))
        (new / "README.md").write_text(readme_text(model.name, request, has_model=model.found is not None))
        versions = model.found.versions if model.found is not None else {}
        if not all(path.resolve().is_relative_to(folder.resolve()) for path in versions.values()):
            for version, path in versions.items():
                ignored = shutil.ignore_patterns(".*")
                shutil.copytree(path, new / model.name / str(version), ignore=ignored)
        return Starter(folder, move_all(new, folder), model, request)
