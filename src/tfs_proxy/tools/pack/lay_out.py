"""Lays a model out in a new folder as SageMaker wants it: NAME/VERSION/, code/; `pack` writes that folder."""

import csv
import json
import logging
import os
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from tfs_proxy.model.discover import (
    CHECKPOINT,
    OTHER_FORMATS,
    ROOT_MODEL_NAME,
    DiscoveredModel,
    discover,
    other_format,
    unreadable,
)
from tfs_proxy.model.fetch import MODEL_FILE_ENDINGS
from tfs_proxy.model.saved_model import read_saved_model
from tfs_proxy.settings.settings import Settings
from tfs_proxy.tools.export.child import ExportReport, ExportRequest, export
from tfs_proxy.tools.export.preprocessing import FLAGS, Preprocessing
from tfs_proxy.tools.pack.wheels import download_wheels
from tfs_proxy.values.errors import ArchiveError, DiscoveryError, NoArchive, SettingsError
from tfs_proxy.values.layout import CSV_COLUMNS_FILE, INPUT_NAMES_FILE, ModelLayout, Workspace
from tfs_proxy.values.names import HIGHEST_VERSION, are_names_of, is_model_name, printable
from tfs_proxy.values.signature import default_signature

log = logging.getLogger(__name__)

JUNK = shutil.ignore_patterns(".*", "__pycache__", "*.tar.gz", "*.tgz")
CODE_JUNK = shutil.ignore_patterns("__pycache__", "*.pyc", ".git", ".venv", ".ipynb_checkpoints", ".DS_Store")
CODE = ModelLayout(Path()).code.name
OTHERS = {
    "saved_model.pb": "only the graph of a SavedModel: give its folder, which has variables/ too",
    **OTHER_FORMATS,
    ".tar.gz": "an archive already: `tfs-proxy check` says what would be served from it",
    ".tgz": "an archive already: `tfs-proxy check` says what would be served from it",
    ".onnx": "an ONNX model: make a SavedModel of it first, with onnx2tf",
    ".pt": "a PyTorch model: write it as ONNX, make a SavedModel of that with onnx2tf, and pack that",
    ".pth": "a PyTorch model: write it as ONNX, make a SavedModel of that with onnx2tf, and pack that",
    ".pkl": "a pickle, which runs code when it is read: serve it by a script with model_fn",
    ".joblib": "a pickle, which runs code when it is read: serve it by a script with model_fn",
    ".ckpt": CHECKPOINT,
}
TAKEN = "MODEL must be a SavedModel, a folder of its versions, or a .keras or .h5 file."

DEFAULT_PYTHONS = ("3.13",)
"""The Python of the image for CPUs (Dockerfile.cpu); the one for GPUs has 3.12."""


class LayoutOptions(Struct, frozen=True):
    """A model and what belongs to it, to be laid out as SageMaker wants it."""

    model: Path
    """File or folder of the model."""

    name: str | None = None
    """Name of the model; None for its own."""

    version: int | None = None
    """Version number; None for the model's own."""

    script: Path | None = None
    """File or folder of the script; None without one."""

    requirements: Path | None = None
    """File of the packages that the script needs; None without one."""

    wheels: bool = False
    """True if the packages are downloaded now, and not at each start."""

    pythons: tuple[str, ...] = DEFAULT_PYTHONS
    """Versions of Python for which wheels are downloaded, such as ``3.13``."""

    machine: str = "x86_64"
    """Processor for which wheels are downloaded, such as ``x86_64``."""

    allow_code: bool = False
    """True if a Keras file may run the code in it."""

    preprocessing: Preprocessing | None = None
    """Stages to add to the model's graph; None for none."""

    csv_columns: str | None = None
    """Order of columns of CSV without a header, between commas; None for a Keras model's list of inputs."""


def record_columns(root: Path, columns: str, *, required: bool) -> None:
    """Writes the column order into each version below ``root`` whose inputs are these, and more than one.

    Raises SettingsError if the order is ``required`` and a version has other inputs.
    """
    names = [name.strip() for name in next(csv.reader([columns]))]
    for folder in (folder for model in discover(root) for folder in model.versions.values()):
        summary = read_saved_model(folder)
        signature = default_signature(summary.signatures) if summary else None
        inputs = set(signature.inputs) if signature else set()
        is_order = are_names_of(inputs, names)
        if not is_order and required:
            raise SettingsError(
                f"--csv-columns {printable(columns)} is not an order of the model's inputs, which are "
                f"{printable(', '.join(sorted(inputs)) or 'not known')}."
            )
        if is_order and len(inputs) > 1:
            _record(folder / CSV_COLUMNS_FILE, columns)
            log.info("CSV without a header is read in this order of columns: %s", printable(columns))


def _record(file: Path, text: str) -> None:
    file.parent.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)  # it may be a hard link to the file that was packed
    file.write_text(f"{text}\n")


def add_code(options: LayoutOptions, layout: ModelLayout, cancelled: threading.Event | None = None) -> None:
    """Fills ``code/`` of a laid-out folder; does nothing without a script.

    Raises ArchiveError for missing files, SettingsError for flags that don't fit together, RequirementsError
    if wheels can't be downloaded.
    """
    if options.script is not None:
        _copy_script(options.script, layout)
    if options.requirements is not None:
        _copy_requirements(options.requirements, layout)
    if options.wheels:
        if not layout.requirements.is_file():
            raise SettingsError("--wheels needs to know which: give --requirements FILE.")
        download_wheels(layout.requirements, layout.wheels, options.pythons, options.machine, cancelled)


def _copy_script(script: Path, layout: ModelLayout) -> None:
    shown = printable(str(script))
    if script.is_file():
        layout.code.mkdir(exist_ok=True)
        shutil.copy(script, layout.script)
        return
    if not script.is_dir():
        raise ArchiveError(
            f"There is no file or folder {shown}: --script must be inference.py or its folder."
        )
    if not (script / layout.program).is_file():
        inside = (script / layout.code.name / layout.program).is_file()
        hint = f" Give {shown}/{layout.code.name} instead." if inside else ""
        raise ArchiveError(f"There is no {layout.program} in {shown}, so it would not be used.{hint}")
    shutil.copytree(script, layout.code, ignore=CODE_JUNK)


def _copy_requirements(requirements: Path, layout: ModelLayout) -> None:
    shown = printable(str(requirements))
    if not requirements.is_file():
        raise ArchiveError(f"There is no file {shown}: --requirements must be a requirements.txt.")
    if not layout.script.is_file():
        raise SettingsError("--requirements are those of a script: give --script, too.")
    if layout.requirements.exists() and layout.requirements.read_bytes() != requirements.read_bytes():
        raise SettingsError(
            f"The script's folder has a {layout.requirements.name}, too: leave out one of them."
        )
    if layout.lib.is_dir():
        raise SettingsError(f"--requirements would be ignored: the script's folder has {layout.lib.name}/.")
    shutil.copyfile(requirements, layout.requirements)


def is_keras_file(path: Path) -> bool:
    """False for a folder, which may have SavedModels. Raises NoArchive and DiscoveryError."""
    if path.is_dir():
        return False
    shown = printable(str(path))
    if not path.is_file():
        raise NoArchive(f"There is no file or folder {shown}: {TAKEN}")
    if path.suffix.lower() not in MODEL_FILE_ENDINGS:
        form = other_format(path, OTHERS)
        what = f"is {form}" if form else "is none of the kinds that can be packed"
        raise DiscoveryError(f"{shown} {what}. {TAKEN}")
    return True


def laid_out(
    model: str | None, workspace: Workspace, settings: Settings, cancelled: threading.Event
) -> str | None:
    """Lays out a model file and returns the folder; returns ``model`` itself if it is no such file.

    Raises what `lay_out` raises; CancelledError once another thread has set ``cancelled``.
    """
    if model is None or Path(model).suffix.lower() not in MODEL_FILE_ENDINGS or not Path(model).is_file():
        return model
    lay_out(LayoutOptions(Path(model)), workspace.model, settings, cancelled)
    return str(workspace.model)


def lay_out(
    options: LayoutOptions, root: Path, settings: Settings, cancelled: threading.Event | None = None
) -> None:
    """Fill ``root``, a new folder, with the model and its script; files are linked or copied.

    Raises what `is_keras_file`, `discover`, `export` and `add_code` raise, ArchiveError for files that can't
    be read, and SettingsError for a name or version that does not fit the model.
    """
    check_name(options)
    root.mkdir()
    layout = ModelLayout(root, settings.program)
    columns = options.csv_columns
    try:
        if is_keras_file(options.model):
            add_code(options, layout, cancelled)  # first: a mistake in it need not wait for the export
            target = root / (options.name or _name_for(options.model.stem)) / str(options.version or 1)
            target.mkdir(parents=True)
            log.info("exporting %s as a SavedModel, in a process of its own", printable(str(options.model)))
            request = ExportRequest(
                options.model.absolute(),
                target,
                options.allow_code,
                options.preprocessing,
            )
            target.rmdir()
            report = export(request, cancelled)
            log.info("%s has exported it", report.exporter)
            _warn(report)
            columns = columns or ",".join(report.inputs)
            if report.own_names:
                _record(target / INPUT_NAMES_FILE, json.dumps(report.own_names))
        else:
            _lay_out_folder(options, root, cancelled)
            add_code(options, layout, cancelled)
        if columns:
            record_columns(root, columns, required=options.csv_columns is not None)
    except OSError as error:
        path = Path(error.filename) if isinstance(error.filename, str) else options.model
        raise ArchiveError(printable(unreadable(path, error))) from error


def check_name(options: LayoutOptions) -> None:
    if options.name is not None and (not is_model_name(options.name) or options.name == CODE):
        raise SettingsError(
            f"--model-name {printable(options.name)} can't be a model's name: take letters, digits, '.', "
            f"'_' and '-', a letter or digit first, and not {CODE}, which is the script's folder."
        )
    if options.version is not None and not 0 <= options.version <= HIGHEST_VERSION:
        raise SettingsError(f"--version {options.version} is not between 0 and {HIGHEST_VERSION}.")


def _warn(report: ExportReport) -> None:
    for warning in report.warnings:
        log.warning("%s", warning)


def _name_for(text: str) -> str:
    """``text``, if a model can have this name; else a default."""
    return text if is_model_name(text) and text != CODE else ROOT_MODEL_NAME


def _lay_out_folder(options: LayoutOptions, root: Path, cancelled: threading.Event | None) -> None:
    """Copy the models below a folder, or add to their graphs, and its code/ if no script is given."""
    source = options.model.resolve()
    models = discover(source)
    shown = printable(str(source))
    versions = sum(len(model.versions) for model in models)
    if options.name is not None and len(models) > 1:
        raise SettingsError(f"--model-name can't be used: {_listed(models)} are in {shown}.")
    if options.preprocessing is not None and len(models) > 1:
        raise SettingsError(f"{FLAGS} are for one model: {_listed(models)} are in {shown}.")
    if options.version is not None and versions > 1:
        raise SettingsError(f"--version can't be used: {versions} SavedModels are in {shown}.")
    for model in models:
        name = options.name or _name_for(model.name)
        for version, folder in model.versions.items():
            target = root / name / str(version if options.version is None else options.version)
            if options.preprocessing is None:
                _copy_tree(folder, target)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                log.info("adding to the graph of %s, in a process of its own", printable(str(folder)))
                _warn(export(ExportRequest(folder, target, preprocessing=options.preprocessing), cancelled))
    code = ModelLayout(source).code
    if code.is_dir() and options.script is None:
        _copy_tree(code, root / CODE)


def _listed(models: Iterable[DiscoveredModel]) -> str:
    return ", ".join(model.name for model in models)


def _copy_tree(source: Path, target: Path) -> None:
    """Copies without hidden files; links are followed, since the archive has none."""
    shutil.copytree(source, target, copy_function=_copy_file, ignore=JUNK)


def _copy_file(source: str | Path, target: str | Path) -> None:
    """A hard link if the disk allows that, else a copy: models are large."""
    try:
        os.link(Path(source).resolve(), target)
    except OSError:
        shutil.copyfile(source, target)
        shutil.copymode(source, target)
