"""Downloads of ``s3://`` addresses to disk."""

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from msgspec import Struct

from tfs_proxy.model.extract import MAX_ARCHIVE_BYTES, MOST_MEMBERS
from tfs_proxy.model.progress import ProgressLog
from tfs_proxy.values.errors import ArchiveError
from tfs_proxy.values.layout import ARCHIVE_NAME
from tfs_proxy.wire.s3_client import NOT_FOUND, error_code, parse_address, s3_client, s3_errors

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MAX_PART_BYTES = 255
LOOK_SECONDS = 0.05
"""Time between two looks at downloads that other threads do."""


class StoredObject(Struct, frozen=True):
    """Object in a store; ``size`` is in bytes, ``etag`` changes with the content."""

    key: str
    size: int
    etag: str = ""


class ChosenObjects(Struct, frozen=True):
    """The objects to download, by relative path; ``is_archive`` if they are one archive."""

    paths: dict[Path, StoredObject]
    is_archive: bool

    @classmethod
    def of(cls, objects: Sequence[StoredObject], key: str, address: str) -> "ChosenObjects":
        """Choose among ``objects``, which ``key`` names or begins. Raises ArchiveError."""
        prefix = _prefix_of(key, objects)
        served = served_objects(objects, key)
        is_archive = prefix is None or served != objects
        chosen = (
            {Path(ARCHIVE_NAME): served[0]} if is_archive else relative_paths(objects, prefix or "", address)
        )
        check_size(chosen.values(), address)
        return cls(chosen, is_archive)

    def result(self, folder: Path) -> Path:
        """The path of the result, once it is in ``folder``."""
        return folder / ARCHIVE_NAME if self.is_archive else folder


def download(address: str, folder: Path, cancelled: threading.Event | None = None) -> Path:
    """Download ``address`` into ``folder``, which must not exist yet; return the path of the result.

    That is a file for an object, and ``folder`` for a prefix (one that ends in ``/`` or names no object).
    If a prefix holds a ``model.tar.gz``, only that is downloaded. Raises ArchiveError, and CancelledError
    once another thread has set ``cancelled``; on any exception ``folder`` is removed.
    """
    bucket, key = parse_address(address)
    with disk_errors(address), s3_errors(address, ArchiveError):
        client = s3_client()
        chosen = ChosenObjects.of(_objects(client, bucket, key, address), key, address)
        progress = ProgressLog(f"Downloading {address}", cancelled)
        wanted = {folder / path: item for path, item in chosen.paths.items()}
        _fetch_all(client, bucket, wanted, folder, progress)
    return chosen.result(folder)


def objects_at(address: str, client: "Callable[[], S3Client]") -> Sequence[StoredObject]:
    """List what `download` would fetch of ``address``, as ``client()`` sees it now; raises ArchiveError."""
    bucket, key = parse_address(address)
    with s3_errors(address, ArchiveError):
        return served_objects(_objects(client(), bucket, key, address), key)


def keys_below(address: str, client: "Callable[[], S3Client]") -> Iterator[str]:
    """Keys below ``address``, which ends with a slash, relative to it. Raises ArchiveError."""
    bucket, prefix = parse_address(address)
    with s3_errors(address, ArchiveError):
        yield from (item.key.removeprefix(prefix) for item in _listed(client(), bucket, prefix))


def served_objects(objects: Sequence[StoredObject], key: str) -> Sequence[StoredObject]:
    """The ``model.tar.gz`` directly below ``key`` if there is one, else all."""
    prefix = _prefix_of(key, objects)
    return [item for item in objects if prefix is not None and item.key == prefix + ARCHIVE_NAME] or objects


def relative_paths(objects: Iterable[StoredObject], prefix: str, address: str) -> dict[Path, StoredObject]:
    """Map relative paths to the objects below ``prefix``, as SageMaker does (docs/reference/sagemaker.md).

    Skips the empty objects with which consoles mark folders. Raises ArchiveError naming the key that
    is not a safe path, or that is both a file and a folder.
    """
    paths: dict[Path, StoredObject] = {}
    for item in objects:
        rest = item.key.removeprefix(prefix)
        if item.size == 0 and (not rest or rest.endswith("/")):
            continue
        parts = rest.split("/")
        if any(
            part in {"", ".", ".."} or "\0" in part or len(part.encode()) > MAX_PART_BYTES for part in parts
        ):
            raise ArchiveError(f"{address} can't be served: its key {item.key!r} is not the path of a file.")
        paths[Path(*parts)] = item
    for path in paths:
        for parent in list(path.parents)[:-1]:
            if parent in paths:
                raise ArchiveError(
                    f"{address} can't be served: {PurePosixPath(parent)} is both a file and a folder there."
                )
    return paths


def check_size(objects: Iterable[StoredObject], address: str) -> None:
    """Raise ArchiveError if there are no objects, too many of them, or too many bytes in them."""
    sizes = [item.size for item in objects]
    if not sizes:
        raise ArchiveError(
            f"{address} has no objects: it must be an archive, or a prefix with a model below it."
        )
    if len(sizes) > MOST_MEMBERS:
        raise ArchiveError(f"{address} is refused: it has over {MOST_MEMBERS} objects.")
    if sum(sizes) > MAX_ARCHIVE_BYTES:
        raise ArchiveError(f"{address} is refused: it has {sum(sizes)} bytes, over {MAX_ARCHIVE_BYTES}.")


def _objects(client: "S3Client", bucket: str, key: str, address: str) -> Sequence[StoredObject]:
    """List the object called ``key`` if there is one, else all objects below it."""
    from botocore.exceptions import ClientError

    if key and not key.endswith("/"):
        try:
            head = client.head_object(Bucket=bucket, Key=key)
            return [StoredObject(key, head["ContentLength"], head["ETag"])]
        except ClientError as error:
            if error_code(error.response) not in NOT_FOUND:
                raise
        key += "/"
    objects = list(_listed(client, bucket, key))
    if not objects:
        raise ArchiveError(
            f"There is no {address}: no object has this key, and none begins with it and a slash."
        )
    return objects


def _listed(client: "S3Client", bucket: str, prefix: str) -> Iterator[StoredObject]:
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for item in page.get("Contents", []):
            yield StoredObject(item["Key"], item["Size"], item["ETag"])


def _prefix_of(key: str, objects: Sequence[StoredObject]) -> str | None:
    """Prefix that ``objects`` were listed by; None if they are the one object ``key``."""
    if not key or key.endswith("/"):
        return key
    return None if objects[0].key == key else key + "/"


def _fetch_all(
    client: "S3Client", bucket: str, wanted: dict[Path, StoredObject], folder: Path, progress: ProgressLog
) -> None:
    from boto3.s3.transfer import ProgressCallbackInvoker, TransferConfig, create_transfer_manager

    total = sum(item.size for item in wanted.values())
    subscriber = ProgressCallbackInvoker(lambda count: progress.add(count, total))
    try:
        with create_transfer_manager(client, TransferConfig()) as transfers:
            futures = []
            for path, item in wanted.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                futures.append(transfers.download(bucket, item.key, str(path), subscribers=[subscriber]))
            for future in futures:
                while not future.done():
                    progress.refuse_if_cancelled()
                    time.sleep(LOOK_SECONDS)
                future.result()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    progress.finish()


@contextlib.contextmanager
def disk_errors(address: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ArchiveError(f"{address} can't be stored: {error.strerror or error}.") from error
