"""Lists and reads objects in S3; a broken read resumes where it stopped."""

import io
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tfs_proxy.archive.s3_client import one_line, parse_address, s3_errors
from tfs_proxy.errors import SettingsError
from tfs_proxy.transform.failures import StorageError
from tfs_proxy.transform.send.retries import pause_seconds
from tfs_proxy.transform.stores.interface import InputObject

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectTypeDef

READ_ATTEMPTS = 5
READ_BYTES = 128 * 1024  # small, so that a timeout loses little and every attempt makes progress
CONCURRENT_HEADS = 32


def s3_objects(client: "S3Client", address: str) -> Iterator[InputObject]:
    """Yield every object whose key begins with that of ``address``, in the order of S3.

    An object's name is its key without the prefix, as SageMaker names outputs; if the prefix ends inside
    a name, the name begins after the prefix's last slash. Folder markers are skipped. Raises SettingsError.
    """
    bucket, prefix = parse_address(address)
    with s3_errors(address, SettingsError):
        for item in list_keys(client, bucket, prefix):
            if not item["Key"].endswith("/") or item["Size"]:
                name = relative_name(item["Key"], prefix)
                yield InputObject(f"s3://{bucket}/{item['Key']}", name, item["Size"], item["ETag"].strip('"'))


def list_keys(client: "S3Client", bucket: str, prefix: str) -> "Iterator[ObjectTypeDef]":
    """Yield what S3 lists below ``prefix``."""
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        yield from page.get("Contents", [])


def relative_name(key: str, prefix: str) -> str:
    """The path of ``key`` under ``prefix``."""
    rest = key.removeprefix(prefix)
    if not prefix or prefix.endswith("/"):
        return rest
    if rest.startswith("/"):
        return rest[1:]
    return key[prefix.rfind("/") + 1 :]


def s3_object(client: "S3Client", address: str, name: str) -> InputObject:
    """Look up one object by its address. Raises SettingsError if there is none."""
    bucket, key = parse_address(address)
    with s3_errors(address, SettingsError):
        head = client.head_object(Bucket=bucket, Key=key)
    return InputObject(address, name, head["ContentLength"], head["ETag"].strip('"'))


class S3Stream(io.RawIOBase):
    """The bytes of one object; a broken read resumes at its offset, of the same version only."""

    def __init__(self, client: Any, item: InputObject) -> None:
        self._client = client
        self._item = item
        self._bucket, self._key = parse_address(item.address)
        self._offset = 0
        self._body: Any = None

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        """Read up to the size of ``buffer``. Raises StorageError."""
        from botocore.exceptions import BotoCoreError
        from urllib3.exceptions import HTTPError

        if self._offset >= self._item.size:
            return 0
        for attempt in range(1, READ_ATTEMPTS + 1):
            try:
                data = self._read(min(len(buffer), READ_BYTES))
            except (BotoCoreError, HTTPError, OSError) as error:
                self._disconnect()
                if attempt == READ_ATTEMPTS:
                    message = f"it can't be read from S3 at byte {self._offset} ({_broken_read(error)})"
                    raise StorageError(message) from error
                time.sleep(pause_seconds(attempt))
                continue
            if data:
                buffer[: len(data)] = data
                self._offset += len(data)
                return len(data)
            self._disconnect()
        raise StorageError(f"S3 sent only {self._offset} of its {self._item.size} bytes")

    def _read(self, size: int) -> bytes:
        if self._body is None:
            with s3_errors(self._item.address, StorageError):
                self._body = self._client.get_object(
                    Bucket=self._bucket,
                    Key=self._key,
                    IfMatch=f'"{self._item.version}"',
                    **({"Range": f"bytes={self._offset}-"} if self._offset else {}),
                )["Body"]
        return bytes(self._body.read(size))

    def _disconnect(self) -> None:
        if self._body is not None:
            self._body.close()
            self._body = None

    def close(self) -> None:
        """Close the connection."""
        self._disconnect()
        super().close()


def _broken_read(error: BaseException) -> str:
    from botocore.exceptions import ReadTimeoutError

    return "S3 stopped responding" if isinstance(error, ReadTimeoutError) else one_line(error)
