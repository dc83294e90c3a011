"""A model folder -> the models and versions in it; between `fetch` and the supervisor's plan.

The rules are those of contract 2.6, and more layouts than AWS's container knows: SavedModels at any
depth, without a version folder, and behind symbolic links.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfs_proxy.archive.rights import unreadable
from tfs_proxy.errors import DiscoveryError, NoModelFound
from tfs_proxy.layout import ModelLayout
from tfs_proxy.names import HIGHEST_VERSION, is_model_name, is_version

SAVED_MODEL_FILES = ("saved_model.pb", "saved_model.pbtxt")
SAVED_MODEL_FOLDERS = frozenset({"variables", "assets", "assets.extra"})
ROOT_MODEL_NAME = "model"
OTHER_FORMATS = {
    ".keras": "Keras's own format: load it and write a SavedModel with model.export(FOLDER)",
    ".h5": "Keras's HDF5 format: load it and write a SavedModel with model.export(FOLDER)",
    ".tflite": "TensorFlow Lite's format, which is not served",
    ".onnx": "ONNX, which is not served",
    ".tar.gz": "an archive: give its path instead of the folder's, or name it model.tar.gz",
    ".tgz": "an archive: give its path instead of the folder's, or name it model.tar.gz",
}
HINTS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class DiscoveredModel:
    """One model: ``versions`` maps each version number, ascending, to its SavedModel folder."""

    name: str
    versions: Mapping[int, Path]

    @property
    def bytes_on_disk(self) -> int:
        """The size of all versions."""
        return sum(path.stat().st_size for path in self.files())

    def files(self) -> Iterator[Path]:
        """The graphs, variables and assets of all versions; raises PermissionError where it may not look."""
        for folder in self.versions.values():
            yield from _files_of(folder)


@dataclass(frozen=True, slots=True)
class _Found:
    """A SavedModel as it was come across: the folder's path, and where that really is."""

    path: Path
    real: Path

    @property
    def versioned(self) -> bool:
        return is_version(self.path.name)


def discover(root: Path) -> tuple[DiscoveredModel, ...]:
    """Find every model below ``root``, by name; ``code/`` of the root is not looked into.

    ``NAME/VERSION/saved_model.pb`` at any depth is a version of NAME; a SavedModel in a folder that
    is no number is version 1 of a model of that folder's name; in the root itself the name is
    ``model``. Raises NoModelFound where there is none, DiscoveryError where two have one name and
    version, or where a folder's name can't be a model's.
    """
    search = _Search(root)
    search.run()
    found = [one for one in search.found if one.path != root and one.versioned]
    named = {one.real for one in found}
    found += sorted((one for one in search.found if one.real not in named), key=_links_last)
    found = _once_each(found)
    if not found:
        raise NoModelFound(_nothing_found(search))
    models: dict[str, dict[int, Path]] = {}
    for one in sorted(found, key=lambda one: one.path):
        name, version = _name_and_version(root, one)
        _enter(models, name, version, one.path)
    return tuple(DiscoveredModel(name, dict(sorted(models[name].items()))) for name in sorted(models))


def base_paths(models: Iterable[DiscoveredModel], folder: Path) -> dict[str, Path]:
    """Give each model a base path as TF Serving reads it: one folder with a sub-folder a version.

    Where the model lies so already that is its own folder; else ``folder/NAME`` is made, with a
    symbolic link for each version. Nothing is written where no model needs it.
    """
    return {model.name: _base_path(model, folder) for model in models}


def default_model(models: Sequence[DiscoveredModel], wanted: str | None) -> str:
    """Name the model for requests that name none: ``wanted``, else the only one, else the first.

    Raises DiscoveryError where ``wanted`` is not among ``models``.
    """
    names = sorted(model.name for model in models)
    if wanted is None:
        return names[0]
    if wanted not in names:
        raise DiscoveryError(
            f"SAGEMAKER_TFS_DEFAULT_MODEL_NAME={wanted} names no model that is here: {', '.join(names)}."
        )
    return wanted


class _Search:
    """A walk through folders, each real one once, so that links in a circle end."""

    def __init__(self, root: Path) -> None:
        self._code = ModelLayout(root).code
        self._visited: set[Path] = set()
        self._waiting: deque[Path] = deque([root])
        self._links: deque[Path] = deque()
        self.root = root
        self.found: list[_Found] = []
        self.others: list[Path] = []

    @property
    def folders(self) -> int:
        """How many folders were looked into."""
        return len(self._visited)

    def run(self) -> None:
        while self._waiting or self._links:
            folder = self._waiting.popleft() if self._waiting else self._links.popleft()
            real = folder.resolve()
            is_model = any((folder / name).is_file() for name in SAVED_MODEL_FILES)
            if is_model:
                self.found.append(_Found(folder, real))
            if real not in self._visited:
                self._visited.add(real)
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
            elif entry.name.endswith(tuple(OTHER_FORMATS)):
                self.others.append(path)


def _links_last(found: _Found) -> tuple[bool, Path]:
    return found.path.is_symlink(), found.path


def _once_each(found: Sequence[_Found]) -> list[_Found]:
    """Drop further names of one SavedModel, unless they are version numbers of their own."""
    kept: list[_Found] = []
    seen: set[Path] = set()
    for one in found:
        if one.versioned or one.real not in seen:
            kept.append(one)
        seen.add(one.real)
    return kept


def _name_and_version(root: Path, found: _Found) -> tuple[str, int]:
    if found.path == root:
        return ROOT_MODEL_NAME, 1
    folder = found.path.parent if found.versioned else found.path
    version = int(found.path.name) if found.versioned else 1
    if version > HIGHEST_VERSION:
        raise DiscoveryError(f"{found.path} can't be served: a version is at most {HIGHEST_VERSION}.")
    if folder == root:
        return ROOT_MODEL_NAME, version
    if not is_model_name(folder.name):
        raise DiscoveryError(
            f"{folder} can't be served: a model's name may have letters, digits, '.', '_' and '-', "
            "must begin with a letter or digit, and is the name of this folder. Rename it."
        )
    return folder.name, version


def _enter(models: dict[str, dict[int, Path]], name: str, version: int, path: Path) -> None:
    versions = models.setdefault(name, {})
    for other in versions.values():
        if other.parent != path.parent or version in versions:
            raise DiscoveryError(
                f"Two models are called {name}: {other} and {path}. Rename one of the folders, "
                "or put them in one folder as versions of different numbers."
            )
    versions[version] = path


def _files_of(folder: Path) -> Iterator[Path]:
    yield from (folder / name for name in SAVED_MODEL_FILES if (folder / name).is_file())
    for name in SAVED_MODEL_FOLDERS:
        if (folder / name).is_dir():
            for parent, _, files in os.walk(folder / name, onerror=_raise):
                paths = (Path(parent) / file for file in files)
                yield from (path for path in paths if path.is_file())


def _raise(error: OSError) -> None:
    raise error


def _base_path(model: DiscoveredModel, folder: Path) -> Path:
    paths = model.versions.values()
    if all(is_version(path.name) and int(path.name) == version for version, path in model.versions.items()):
        return next(iter(paths)).parent
    base = folder / model.name
    base.mkdir(parents=True)
    for version, path in model.versions.items():
        (base / str(version)).symlink_to(path.resolve(), target_is_directory=True)
    return base


def _nothing_found(search: _Search) -> str:
    root = search.root
    folders = "1 folder" if search.folders == 1 else f"{search.folders} folders"
    text = (
        f"No SavedModel was found in {root} ({folders} searched, code/ not among them). "
        f"Expected {root}/NAME/1/saved_model.pb with variables/ beside it."
    )
    for path in search.others[:HINTS_SHOWN]:
        form = next(words for ending, words in OTHER_FORMATS.items() if path.name.endswith(ending))
        text += f" {path.relative_to(root)} is {form}."
    if _holds_saved_model(ModelLayout(root).code):
        text += " There is one below code/, which is for the script: move it out of there."
    return text


def _holds_saved_model(folder: Path) -> bool:
    return any(SAVED_MODEL_FILES[0] in files for _, _, files in os.walk(folder))
