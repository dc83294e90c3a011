"""Search for the models and versions in a folder, by the rules of AWS's container.

They are in docs/reference/aws-container.md; more layouts are accepted: SavedModels at any depth, without a
version folder, and behind symbolic links.
"""

import os
import pwd
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from stat import S_IMODE

from msgspec import Struct

from tfs_proxy.model.graph_nodes import BINARY_FILE
from tfs_proxy.values.errors import ArchiveError, DiscoveryError, NoModelFound
from tfs_proxy.values.layout import ModelLayout
from tfs_proxy.values.names import HIGHEST_VERSION, is_model_name, is_version

SAVED_MODEL_FILES = (BINARY_FILE, "saved_model.pbtxt")
SAVED_MODEL_FOLDERS = frozenset({"variables", "assets", "assets.extra"})
ROOT_MODEL_NAME = "model"
CHECKPOINT = (
    "a checkpoint: weights without a graph. Where the model is built: model.load_weights('PREFIX'), or "
    "tf.train.Checkpoint(model=model).restore('PREFIX'); then model.export('NAME/1')"
)

LITE = (
    "TensorFlow Lite's format, which TensorFlow has moved to LiteRT and which is not served: pack the model "
    "that it was converted from, or run it with LiteRT in a script that has model_fn"
)

FROZEN_GRAPH = (
    "a frozen graph, as TensorFlow 1 writes it. With the names of its nodes for INPUT and OUTPUT, these "
    "lines of Python make a SavedModel of it: "
    "import tensorflow as tf; graph = tf.compat.v1.GraphDef.FromString(open('FILE', 'rb').read()); "
    "whole = tf.compat.v1.wrap_function(lambda: tf.import_graph_def(graph, name=''), []); "
    "model = tf.Module(); model.serve = whole.prune(['INPUT:0'], {'y': 'OUTPUT:0'}); "
    "tf.saved_model.save(model, 'NAME/1', signatures=model.serve)"
)
OTHER_FORMATS = {
    ".keras": "Keras's own format: make an archive of it with `tfs-proxy pack FILE`",
    ".h5": "Keras's HDF5 format: make an archive of it with `tfs-proxy pack FILE`",
    ".tflite": LITE,
    ".onnx": "ONNX, which is not served",
    ".index": CHECKPOINT,
    ".pb": FROZEN_GRAPH,
    ".tar.gz": "an archive: give its path instead of the folder's, or name it model.tar.gz",
    ".tgz": "an archive: give its path instead of the folder's, or name it model.tar.gz",
}
BESIDE_A_GRAPH = frozenset({"fingerprint.pb", "keras_metadata.pb"})
HINTS_SHOWN = 3


def other_format(path: Path, formats: Mapping[str, str] = OTHER_FORMATS) -> str | None:
    """A clause that says what a file is, and what to do with it, by the ending of its name; else None."""
    ending = next((ending for ending in formats if path.name.lower().endswith(ending)), None)
    return formats.get(ending or "")


class DiscoveredModel(Struct, frozen=True):
    """One model: ``versions`` maps each version number, ascending, to its SavedModel folder."""

    name: str
    versions: Mapping[int, Path]

    @property
    def bytes_on_disk(self) -> int:
        return sum(path.stat().st_size for path in self.files())

    def files(self) -> Iterator[Path]:
        """Yield the graphs, variables and assets of all versions. Raises PermissionError."""
        for version in self.versions.values():
            yield from (version / name for name in SAVED_MODEL_FILES if (version / name).is_file())
            for folder in (version / name for name in SAVED_MODEL_FOLDERS if (version / name).is_dir()):
                for parent, _, files in os.walk(folder, onerror=_raise):
                    yield from (path for path in (Path(parent) / file for file in files) if path.is_file())


def discover(root: Path) -> tuple[DiscoveredModel, ...]:
    """Find every model below ``root``, sorted by name; skips ``code/`` of the root.

    ``NAME/VERSION/saved_model.pb`` at any depth is a version of NAME. A SavedModel in a folder whose name
    is not a number is version 1 of a model of that name. So it is for the root itself, whose name may be that
    of no model: then it is ``model``. Raises NoModelFound if there is none, DiscoveryError if two have the
    same name and version, or if a folder's name can't be a model's name.
    """
    search = _Search(root)
    search.walk()
    real = search.saved_models
    versioned = [path for path in real if path != root and is_version(path.name)]
    named = {real[path] for path in versioned}
    others = sorted(
        (path for path in real if real[path] not in named), key=lambda path: (path.is_symlink(), path)
    )
    # Other names of the same SavedModel are dropped, unless they are version numbers of their own.
    once = {real[path]: path for path in reversed(others)}
    saved_models = [
        *versioned,
        *(path for path in others if is_version(path.name) or once[real[path]] == path),
    ]
    if not saved_models:
        folders = "1 folder" if len(search.visited) == 1 else f"{len(search.visited)} folders"
        text = (
            f"No SavedModel was found in {root} ({folders} searched, code/ not among them). "
            f"Expected {root}/NAME/1/saved_model.pb with variables/ next to it."
        )
        for path in search.others[:HINTS_SHOWN]:
            text += f" {path.relative_to(root)} is {other_format(path)}."
        if any(SAVED_MODEL_FILES[0] in files for _, _, files in os.walk(ModelLayout(root).code)):
            text += " There is one below code/, which is for the script: move it out."
        raise NoModelFound(text)
    models: dict[str, dict[int, Path]] = {}
    for path in sorted(saved_models):
        name, version = _name_and_version(root, path)
        versions = models.setdefault(name, {})
        for other in versions.values():
            if other.parent != path.parent or version in versions:
                raise DiscoveryError(
                    f"Two models are called {name}: {other} and {path}. Rename one of the folders, "
                    "or put them in one folder as versions of different numbers."
                )
        versions[version] = path
    return tuple(DiscoveredModel(name, dict(sorted(models[name].items()))) for name in sorted(models))


def base_paths(models: Iterable[DiscoveredModel], folder: Path) -> dict[str, Path]:
    """Make the base path of each model for TF Serving: a folder with a sub-folder for each version.

    A model that is stored so keeps its folder; for another, and for one whose path can't be printed, creates
    ``folder/NAME`` with a symbolic link to each version.
    """
    bases = {}
    for model in models:
        versions = model.versions
        bases[model.name] = parent = next(iter(versions.values())).parent
        is_stored_so = all(
            is_version(path.name) and int(path.name) == number for number, path in versions.items()
        )
        # A folder's name could write lines into the model server's log.
        if not (is_stored_so and str(parent).isprintable()):
            bases[model.name] = base = folder / model.name
            base.mkdir(parents=True)
            for version, path in versions.items():
                (base / str(version)).symlink_to(path.resolve(), target_is_directory=True)
    return bases


def default_model(models: Sequence[DiscoveredModel], wanted: str | None) -> str:
    """Choose the model for requests that name none: ``wanted``, else the first by name.

    Raises DiscoveryError if ``wanted`` is not among ``models``.
    """
    names = sorted(model.name for model in models)
    if wanted is None:
        return names[0]
    if wanted not in names:
        raise DiscoveryError(
            f"SAGEMAKER_TFS_DEFAULT_MODEL_NAME={wanted} is not the name of a model here: {', '.join(names)}."
        )
    return wanted


class _Search:
    """Walk through folders; visits each real folder once, so that loops of links end."""

    def __init__(self, root: Path) -> None:
        self._code = ModelLayout(root).code
        self.visited: set[Path] = set()
        self._waiting: deque[Path] = deque([root])
        self._links: deque[Path] = deque()
        self.saved_models: dict[Path, Path] = {}  # the path without links, by that which was found
        self.others: list[Path] = []

    def walk(self) -> None:
        while self._waiting or self._links:
            folder = self._waiting.popleft() if self._waiting else self._links.popleft()
            real = folder.resolve()
            is_model = any((folder / name).is_file() for name in SAVED_MODEL_FILES)
            if is_model:
                self.saved_models[folder] = real
            if real not in self.visited:
                self.visited.add(real)
                self._look_into(folder, is_model)

    def _look_into(self, folder: Path, is_model: bool) -> None:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            raise DiscoveryError(unreadable(folder, error)) from error
        for entry in entries:
            path = folder / entry.name
            if path == self._code or (is_model and entry.name in SAVED_MODEL_FOLDERS):
                continue
            if entry.is_symlink() and path.is_dir():
                self._links.append(path)
            elif entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                self._waiting.append(path)
            elif entry.name.endswith(tuple(OTHER_FORMATS)) and entry.name not in BESIDE_A_GRAPH:
                self.others.append(path)


def _name_and_version(root: Path, path: Path) -> tuple[str, int]:
    folder = path.absolute()
    version = 1
    if is_version(path.name):
        version = int(folder.name)
        folder = folder.parent
    if version > HIGHEST_VERSION:
        raise DiscoveryError(f"{path} can't be served: a version is at most {HIGHEST_VERSION}.")
    if is_model_name(folder.name):
        return folder.name, version
    if path == root or folder == root.absolute():
        return ROOT_MODEL_NAME, version
    raise DiscoveryError(
        f"{folder} can't be served: a model's name may have letters, digits, '.', '_' and '-', "
        "and must begin with a letter or digit. Rename the folder."
    )


def _raise(error: OSError) -> None:
    raise error


def unreadable(path: Path, error: OSError) -> str:
    """Sentence that says why ``path`` can't be read and, for denied access, what to do."""
    if not isinstance(error, PermissionError):
        return f"{path} can't be read: {error.strerror or error}."
    barrier = next((part for part in (*reversed(path.parents), path) if not _may_read(part, path)), path)
    denied = f"{barrier} can't be read by user {_user(os.geteuid())}"
    try:
        status = barrier.stat()
    except OSError as failure:
        return f"{denied}: {failure.strerror}."
    return (
        f"{denied}: it belongs to user {_user(status.st_uid)} and has mode {S_IMODE(status.st_mode):03o}. "
        f"Let every user read it (chmod -R a+rX {barrier}), or run as its owner."
    )


def refuse_unreadable(paths: Iterable[Path]) -> None:
    """Raise ArchiveError for the first of ``paths`` that this user may not read."""
    for path in paths:
        if not os.access(path, os.R_OK):
            raise ArchiveError(unreadable(path, PermissionError()))


def _may_read(path: Path, wanted: Path) -> bool:
    """True if ``path``, ``wanted`` or a folder above it, lets this user through to ``wanted``."""
    needed = os.X_OK
    if path == wanted:
        is_folder = os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises if a folder above may not be entered
        needed = os.R_OK | os.X_OK if is_folder else os.R_OK
    return os.access(path, needed)


def _user(number: int) -> str:
    try:
        return f"{pwd.getpwuid(number).pw_name} ({number})"
    except KeyError:
        return str(number)
