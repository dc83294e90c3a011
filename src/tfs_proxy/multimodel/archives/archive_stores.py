"""The archives in a folder or below a prefix in S3: lists them for `folder`, and says what is below it."""

import functools
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tfs_proxy.archive.discover import unreadable
from tfs_proxy.archive.s3_client import parse_address, s3_client, s3_errors
from tfs_proxy.errors import ArchiveError, SettingsError
from tfs_proxy.names import ARCHIVE_ENDING

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_log = logging.getLogger(__name__)


class LocalArchives:
    """The archives below a folder; neither hidden ones nor those that a link brings in from outside."""

    stale_seconds = 1.0
    """A request that names an unknown model must not cost a walk over all folders each time."""

    def __init__(self, root: Path) -> None:
        """Raises SettingsError if ``root`` is not a folder."""
        if not root.is_dir():
            raise SettingsError(f"--multi-model {root} can't be used: it is not a folder.")
        self._root = root.resolve()

    def __str__(self) -> str:
        """The folder."""
        return str(self._root)

    def paths(self) -> Iterator[str]:
        """The archives' paths, relative and with slashes. Raises ArchiveError if the folder can't be read."""
        for folder, folders, files in os.walk(self._root, onerror=self._note_unreadable):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(files):
                path = Path(folder, name)
                if name.endswith(ARCHIVE_ENDING) and not name.startswith(".") and self._has_file(path):
                    yield path.relative_to(self._root).as_posix()

    def url_of(self, path: str) -> str:
        """The absolute path of an archive."""
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

    def _has_file(self, path: Path) -> bool:
        if not path.is_symlink():
            return path.is_file()
        return self.below(str(path)) is not None and path.is_file()

    def _note_unreadable(self, error: OSError) -> None:
        if Path(error.filename) == self._root:
            raise ArchiveError(unreadable(self._root, error)) from error
        _log.warning("no models are served from %s: %s", error.filename, error.strerror)


class S3Archives:
    """The archives below a prefix in S3."""

    stale_seconds = 5.0
    """A request that names an unknown model must not cost a call to S3 each time."""

    def __init__(self, address: str) -> None:
        """Raises ArchiveError if ``address`` is malformed."""
        self._bucket, key = parse_address(address)
        self._prefix = f"{key.rstrip('/')}/" if key.rstrip("/") else ""

    def __str__(self) -> str:
        """The address, with a slash at its end."""
        return f"s3://{self._bucket}/{self._prefix}"

    def paths(self) -> Iterator[str]:
        """The archives' keys below the prefix. Raises ArchiveError."""
        with s3_errors(str(self), ArchiveError):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix
            )
            for page in pages:
                keys = (item["Key"].removeprefix(self._prefix) for item in page.get("Contents", []))
                yield from (key for key in keys if key.endswith(ARCHIVE_ENDING))

    def url_of(self, path: str) -> str:
        """The address of an archive."""
        return f"{self}{path}"

    def below(self, url: str) -> str | None:
        """``url``, or None if it is not an address below the prefix."""
        parts = url.removeprefix(str(self)).split("/")
        is_path = url.startswith(str(self)) and not any(part in {"", ".", ".."} for part in parts)
        return url if is_path else None

    @functools.cached_property
    def _client(self) -> "S3Client":
        return s3_client()
