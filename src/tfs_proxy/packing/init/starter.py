"""All of ``tfs-proxy init``: read the model, fill the texts in, try the example, move all into place."""

import os
import shutil
import tempfile
from pathlib import Path

from msgspec import Struct

from tfs_proxy.archive.discover import DiscoveredModel
from tfs_proxy.archive.permissions import unreadable
from tfs_proxy.errors import ArchiveError, SettingsError
from tfs_proxy.layout import ModelLayout
from tfs_proxy.names import printable
from tfs_proxy.packing.init.example_request import ExampleRequest, example_request
from tfs_proxy.packing.init.new_files import move_all
from tfs_proxy.packing.init.starter_model import StarterModel, read_model
from tfs_proxy.packing.init.texts import readme_text, requirements_text, script_test_text, script_text
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor.host.workspace import temporary_workspace


class Starter(Struct, frozen=True):
    """What `init` has written: the folder, the files below it, the model, and the example request."""

    folder: Path
    files: tuple[Path, ...]
    model: StarterModel
    request: ExampleRequest


def init(folder: Path, model: str | None, settings: Settings) -> Starter:
    """Write a script, its test, requirements, README and an example request into ``folder``.

    With a ``model``, whatever `serve` takes, they are made for its default model, which is copied into
    ``folder`` unless it is there. Raises what `read_model` and `example_request` raise, SettingsError for a
    folder that can't be used, ArchiveError for files that can't be read or written; then nothing is written.
    """
    folder = folder.absolute()
    _check_folder(folder)
    with temporary_workspace(settings.home, "tfs-proxy-init-") as workspace:
        known = StarterModel() if model is None else read_model(model, workspace, settings)
        try:
            return _write(folder, known, settings)
        except OSError as error:
            path = Path(error.filename) if isinstance(error.filename, str) else folder
            raise ArchiveError(printable(unreadable(path, error))) from error


def _check_folder(folder: Path) -> None:
    """Raise SettingsError before the work if nothing can be written there."""
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


def _where_files_are_made(folder: Path) -> Path:
    """A folder on the same disk: moving files within it is quick."""
    return folder if folder.is_dir() else folder.parent


def _write(folder: Path, model: StarterModel, settings: Settings) -> Starter:
    with tempfile.TemporaryDirectory(prefix=".tfs-proxy-init-", dir=_where_files_are_made(folder)) as made:
        new = Path(made)
        request = _make(new, model, settings)
        if model.found is not None and not _is_below(folder, model.found):
            _copy_model(model.found, new)
        return Starter(folder, move_all(new, folder), model, request)


def _make(new: Path, model: StarterModel, settings: Settings) -> ExampleRequest:
    """Write the files, the example request last: the script must answer it."""
    layout = ModelLayout(new)
    layout.code.mkdir()
    layout.script.write_text(script_text(model.signature))
    layout.requirements.write_text(requirements_text())
    request = example_request(layout.script, model.signature, settings, model.graph)
    (new / request.file_name).write_bytes(request.body)
    (new / "tests").mkdir()
    (new / "tests" / "test_inference.py").write_text(script_test_text(model.signature, request))
    (new / "README.md").write_text(readme_text(model.name, request, has_model=model.found is not None))
    return request


def _is_below(folder: Path, model: DiscoveredModel) -> bool:
    return all(path.resolve().is_relative_to(folder.resolve()) for path in model.versions.values())


def _copy_model(model: DiscoveredModel, new: Path) -> None:
    """Lay the versions out as SageMaker wants them."""
    for version, path in model.versions.items():
        shutil.copytree(path, new / model.name / str(version), ignore=shutil.ignore_patterns(".*"))
