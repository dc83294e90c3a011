"""``--multi-model FOLDER|s3://PREFIX``: what a model's name stands for below it; the registry asks here.

The model of the archive ``team/a.tar.gz`` is called ``team--a``. Archives may come and go during a run.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from tfs_proxy.archive.s3_client import S3_SCHEME
from tfs_proxy.errors import BadInput, SettingsError
from tfs_proxy.multimodel.archives.archive_stores import LocalArchives, S3Archives
from tfs_proxy.names import (
    ARCHIVE_ENDING,
    LOADED_MODEL_RULE,
    SLASH_IN_NAME,
    is_loaded_model_name,
    printable,
)

_log = logging.getLogger(__name__)


class ArchiveStore(Protocol):
    """Where archives are: a folder or a prefix."""

    stale_seconds: float
    """How long a listing is taken for true."""

    def paths(self) -> Iterable[str]:
        """The archives' paths, relative and with slashes. Raises ArchiveError."""

    def url_of(self, path: str) -> str:
        """What can be fetched: an absolute path or an ``s3://`` address."""

    def below(self, url: str) -> str | None:
        """``url`` as it may be loaded, without links; None if it is not below the folder."""


class Listing(Struct, frozen=True):
    """The archives there are: ``paths`` by name, several if they meet; ``unnamed`` has reasons by path."""

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
    if not is_loaded_model_name(name):
        raise BadInput(
            f"{printable(path)} can't be the path of a model, because the model would be called "
            f"{printable(name)}: a name has {LOADED_MODEL_RULE}."
        )
    return name


def listing_of(paths: Iterable[str]) -> Listing:
    """``paths`` by the names of their models."""
    named: dict[str, list[str]] = {}
    unnamed: dict[str, str] = {}
    for path in sorted(paths):
        try:
            named.setdefault(model_name(path), []).append(path)
        except BadInput as error:
            unnamed[path] = str(error)
    return Listing(named, unnamed)


class ModelFolder:
    """The archives below one folder or prefix, by name; its methods wait for a disk or S3: use a thread."""

    def __init__(self, store: ArchiveStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._listing = Listing({}, {})
        self._listed_at: float | None = None

    def check(self) -> Listing:
        """What there is, to be asked for at the start. Raises ArchiveError, SettingsError if names meet."""
        listing = self.listing()
        for name, paths in listing.paths.items():
            if len(paths) > 1:
                raise SettingsError(_met(name, paths))
        for reason in listing.unnamed.values():
            _log.warning("%s", reason)
        return listing

    def listing(self) -> Listing:
        """What there is now. Raises ArchiveError."""
        with self._lock:
            now = self._clock()
            if self._listed_at is None or now - self._listed_at >= self._store.stale_seconds:
                self._listing, self._listed_at = listing_of(self._store.paths()), now
            return self._listing

    def url_of(self, name: str, listing: Listing | None = None) -> str | None:
        """What the model ``name`` is loaded from: an absolute path or an ``s3://`` address; None without one.

        With a ``listing`` nothing is waited for. Raises ArchiveError, and BadInput if two archives have met
        in this name since the start.
        """
        paths = (listing or self.listing()).paths.get(name, ())
        if len(paths) > 1:
            raise BadInput(_met(name, paths))
        return self._store.url_of(paths[0]) if paths else None

    def require_below(self, url: str) -> str:
        """``url`` of a load request, without links, if it is below the folder; else raises BadInput."""
        allowed = self._store.below(url)
        if allowed is None:
            raise BadInput(
                f"{printable(url)} can't be loaded: with --multi-model {self._store} only what is below that "
                "folder can be."
            )
        return allowed


def model_folder(location: str) -> ModelFolder:
    """The models below ``location``, a folder or an ``s3://`` address.

    Raises SettingsError if it is not a folder, ArchiveError if the address is malformed.
    """
    if location.startswith(S3_SCHEME):
        return ModelFolder(S3Archives(location))
    return ModelFolder(LocalArchives(Path(location)))


def _met(name: str, paths: Sequence[str]) -> str:
    met = " and ".join(map(printable, paths))
    return (
        f"{met} would both be the model {name}, because it has {SLASH_IN_NAME} for slashes: "
        "rename one of them."
    )
