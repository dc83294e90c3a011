"""Archives below a folder or a prefix in a store, by model names; and the script for those without one."""

import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from msgspec import Struct

from tfs_proxy.model.discover import unreadable
from tfs_proxy.model.stores import download, is_remote, keys_below
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import ArchiveError, BadInput, SettingsError
from tfs_proxy.values.layout import UNIVERSAL_CODE_DIRS, Workspace
from tfs_proxy.values.names import (
    ARCHIVE_ENDING,
    LOADED_MODEL,
    LOADED_MODEL_RULE,
    SLASH_IN_NAME,
    is_model_name,
    printable,
)
from tfs_proxy.wire.s3_client import s3_client

log = logging.getLogger(__name__)


class LocalArchives:
    """The archives below a folder, without hidden ones and links to the outside."""

    stale_seconds = 1.0
    """A request that names an unknown model must not cost a walk over all folders each time."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def __str__(self) -> str:
        return str(self._root)

    def paths(self) -> Iterator[str]:
        """Relative paths of the archives, with slashes. Raises ArchiveError if the folder can't be read."""
        for folder, folders, files in os.walk(self._root, onerror=self._note_unreadable):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(files):
                path = Path(folder, name)
                is_named = name.endswith(ARCHIVE_ENDING) and not name.startswith(".")
                if is_named and path.is_file() and (not path.is_symlink() or self.below(str(path))):
                    yield path.relative_to(self._root).as_posix()

    def url_of(self, path: str) -> str:
        return str(self._root / path)

    def below(self, url: str) -> str | None:
        """``url``, absolute or relative to the folder, without links; None if it is not below the folder."""
        if "://" in url:
            return None
        try:
            path = (self._root / url).resolve()
        except (OSError, RuntimeError, ValueError):  # a loop of links, a name that is too long, a zero byte
            return None
        return str(path) if self._root in path.parents else None

    def _note_unreadable(self, error: OSError) -> None:
        if Path(error.filename) == self._root:
            raise ArchiveError(unreadable(self._root, error)) from error
        log.warning("no models are served from %s: %s", error.filename, error.strerror)


class StoredArchives:
    """The archives below a prefix in a store."""

    stale_seconds = 5.0
    """A request that names an unknown model must not cost a call to the store each time."""

    def __init__(self, address: str) -> None:
        self._address = f"{address.rstrip('/')}/"
        self._client = cache(s3_client)

    def __str__(self) -> str:
        return self._address

    def paths(self) -> Iterator[str]:
        """Keys of the archives below the prefix. Raises ArchiveError."""
        keys = keys_below(self._address, self._client)
        return (key for key in keys if key.endswith(ARCHIVE_ENDING))

    def url_of(self, path: str) -> str:
        return f"{self}{path}"

    def below(self, url: str) -> str | None:
        """``url``; None if it is not an address below the prefix."""
        parts = url.removeprefix(str(self)).split("/")
        return url if url.startswith(str(self)) and {"", ".", ".."}.isdisjoint(parts) else None


class Listing(Struct, frozen=True):
    """The archives: ``paths`` by name, several if names collide; ``unnamed`` has reasons by path."""

    paths: Mapping[str, Sequence[str]]
    unnamed: Mapping[str, str]


def model_name(path: str) -> str:
    """The name of the model in the archive at ``path``, which is relative to the folder, with slashes.

    Raises BadInput, with a sentence for the client, if it can't be the path of a model.
    """
    parts = path.split("/")
    if not path.endswith(ARCHIVE_ENDING) or any(part.startswith(".") or not part for part in parts):
        raise BadInput(
            f"{printable(path)} is not the path of a model: it must be relative to the folder of the models "
            f"and end in {ARCHIVE_ENDING}, such as team/a{ARCHIVE_ENDING}, and no part of it may begin with "
            "a dot."
        )
    name = SLASH_IN_NAME.join(parts).removesuffix(ARCHIVE_ENDING)
    if not is_model_name(name, LOADED_MODEL):
        raise BadInput(
            f"{printable(path)} can't be the path of a model, because the model would be called "
            f"{printable(name)}: a name has {LOADED_MODEL_RULE}."
        )
    return name


class ModelFolder:
    """The archives below one folder or prefix, by name; its methods wait for a disk or S3: use a thread."""

    def __init__(self, store: LocalArchives | StoredArchives) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._listing = Listing({}, {})
        self._listed_at: float | None = None

    def check(self) -> Listing:
        """The archives at the start. Raises ArchiveError, and SettingsError if names collide."""
        listing = self.listing()
        for name, paths in listing.paths.items():
            if len(paths) > 1:
                raise SettingsError(_met(name, paths))
        for reason in listing.unnamed.values():
            log.warning("%s", reason)
        return listing

    def listing(self) -> Listing:
        """The archives now. Raises ArchiveError."""
        with self._lock:
            now = time.monotonic()
            if self._listed_at is None or now - self._listed_at >= self._store.stale_seconds:
                named: dict[str, list[str]] = {}
                unnamed: dict[str, str] = {}
                for path in sorted(self._store.paths()):
                    try:
                        named.setdefault(model_name(path), []).append(path)
                    except BadInput as error:
                        unnamed[path] = str(error)
                self._listing = Listing(named, unnamed)
                self._listed_at = now
            return self._listing

    def url_of(self, name: str, listing: Listing | None = None) -> str | None:
        """The absolute path or ``s3://`` address of the model ``name``; None without one.

        With a ``listing`` nothing is waited for. Raises ArchiveError, and BadInput if two archives have got
        the same name since the start.
        """
        paths = (listing or self.listing()).paths.get(name, ())
        if len(paths) > 1:
            raise BadInput(_met(name, paths))
        return self._store.url_of(paths[0]) if paths else None

    def urls(self, listing: Listing) -> Mapping[str, str]:
        """The addresses of all models by name, but for names that two archives have."""
        named = listing.paths.items()
        return {name: self._store.url_of(paths[0]) for name, paths in named if len(paths) == 1}

    def require_below(self, url: str) -> str:
        """``url`` of a load request, without links. Raises BadInput if it is not below the folder."""
        allowed = self._store.below(url)
        if allowed is None:
            raise BadInput(
                f"{printable(url)} can't be loaded: with --multi-model {self._store} only what is below that "
                "folder can be."
            )
        return allowed


def model_folder(location: str) -> ModelFolder:
    """The models below ``location``, a folder or an address of a store.

    Raises SettingsError if it is not a folder.
    """
    if is_remote(location):
        return ModelFolder(StoredArchives(location))
    if not Path(location).is_dir():
        raise SettingsError(f"--multi-model {location} can't be used: it is not a folder.")
    return ModelFolder(LocalArchives(Path(location)))


def _met(name: str, paths: Sequence[str]) -> str:
    met = " and ".join(map(printable, paths))
    return (
        f"{met} would both be the model {name}, because it has {SLASH_IN_NAME} for slashes: "
        "rename one of them."
    )


def universal_code(settings: Settings, workspace: Workspace) -> str | None:
    """The script's folder; None if there is none. Raises ArchiveError for a bucket without one.

    Without a bucket it is the first of AWS's folders that has the script. All files of the bucket are put
    into one folder, without their own folders, as in AWS's container (docs/reference/aws-container.md).
    Waits for S3: call it in a thread.
    """
    if settings.universal_bucket is None:
        return next(
            (str(folder) for folder in UNIVERSAL_CODE_DIRS if (folder / settings.program).is_file()), None
        )
    address = f"s3://{settings.universal_bucket}/{settings.universal_prefix}"
    code = workspace.root / "code"
    downloaded = download(address, workspace.root / "download")
    code.mkdir()
    for path in sorted(file for file in downloaded.rglob("*") if file.is_file()):
        if (code / path.name).exists():
            raise ArchiveError(f"{address} has several files called {path.name}, and one folder is for all.")
        shutil.move(path, code / path.name)
    if not (code / settings.program).is_file():
        raise ArchiveError(
            f"{address} has no {settings.program}: SAGEMAKER_MULTI_MODEL_UNIVERSAL_BUCKET and _PREFIX name "
            "where the script for models without one lies."
        )
    return str(code)
