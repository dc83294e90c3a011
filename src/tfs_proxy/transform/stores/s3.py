"""Objects in S3: listed, and read with a second chance.

boto3 is imported only when an ``s3://`` address is used; endpoints, regions and credentials are its
own business.
"""

import contextlib
import io
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tfs_proxy.archive.s3 import parse_address
from tfs_proxy.errors import SettingsError
from tfs_proxy.transform.failures import StorageError
from tfs_proxy.transform.send.sender import pause_seconds
from tfs_proxy.transform.stores.interface import InputObject

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

S3_SCHEME = "s3://"
READ_ATTEMPTS = 5
READ_BYTES = 128 * 1024
"""What is read at once, and lost where S3 falls silent meanwhile: little, so that each attempt gets on."""
CONNECT_SECONDS = 10.0
HEADS_AT_ONCE = 32
S3_TIMEOUT_SECONDS = 60.0


def s3_client(connections: int, timeout_seconds: float) -> "S3Client":
    """A client whose pool suits so many threads; S3 may be silent for ``timeout_seconds``."""
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        config=Config(
            connect_timeout=min(CONNECT_SECONDS, timeout_seconds),
            read_timeout=timeout_seconds,
            max_pool_connections=connections,
            retries={"max_attempts": 5},
        ),
    )


def s3_objects(client: "S3Client", address: str) -> Iterator[InputObject]:
    """Every object whose key begins with that of ``address``, sorted as S3 does.

    An object's name is its key without the prefix, as the platform names outputs; where the prefix
    ends inside a name, the whole last part of the key counts. Markers of folders are left out.
    """
    bucket, prefix = parse_address(address)
    with s3_errors(address, SettingsError):
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        for page in pages:
            for item in page.get("Contents", []):
                if item["Key"].endswith("/") and item["Size"] == 0:
                    continue
                name = relative_name(item["Key"], prefix)
                yield InputObject(f"s3://{bucket}/{item['Key']}", name, item["Size"], item["ETag"].strip('"'))


def relative_name(key: str, prefix: str) -> str:
    """The path of ``key`` under ``prefix``."""
    rest = key.removeprefix(prefix)
    if not prefix or prefix.endswith("/"):
        return rest
    if rest.startswith("/"):
        return rest[1:]
    return key[prefix.rfind("/") + 1 :]


def s3_object(client: "S3Client", address: str, name: str) -> InputObject:
    """One object by its address. Raises SettingsError where there is none."""
    bucket, key = parse_address(address)
    with s3_errors(address, SettingsError):
        head = client.head_object(Bucket=bucket, Key=key)
    return InputObject(address, name, head["ContentLength"], head["ETag"].strip('"'))


class S3Source:
    """Reads objects."""

    def __init__(self, client: "S3Client") -> None:
        self._client = client

    def open(self, item: InputObject) -> io.RawIOBase:
        """A stream that goes on where it was when a connection breaks."""
        return _S3Stream(self._client, item)


class _S3Stream(io.RawIOBase):
    """One object's bytes; a broken read is taken up again at its place, of the same version only."""

    def __init__(self, client: Any, item: InputObject) -> None:
        self._client = client
        self._item = item
        self._bucket, self._key = parse_address(item.address)
        self._place = 0
        self._body: Any = None

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        """Read up to the size of ``buffer``. Raises StorageError."""
        if self._place >= self._item.size:
            return 0
        for attempt in range(1, READ_ATTEMPTS + 1):
            try:
                data = self._read(min(len(buffer), READ_BYTES))
            except _broken_reads() as error:
                self._drop()
                if attempt == READ_ATTEMPTS:
                    why = f"it can't be read from S3 at byte {self._place} ({_broken_read(error)})"
                    raise StorageError(why) from error
                time.sleep(pause_seconds(attempt))
                continue
            if data:
                buffer[: len(data)] = data
                self._place += len(data)
                return len(data)
            self._drop()
        raise StorageError("S3 ends it before its size is reached")

    def _read(self, size: int) -> bytes:
        if self._body is None:
            with s3_errors(self._item.address, StorageError):
                self._body = self._client.get_object(
                    Bucket=self._bucket,
                    Key=self._key,
                    IfMatch=f'"{self._item.version}"',
                    **({"Range": f"bytes={self._place}-"} if self._place else {}),
                )["Body"]
        return bytes(self._body.read(size))

    def _drop(self) -> None:
        if self._body is not None:
            self._body.close()
            self._body = None

    def close(self) -> None:
        """Give the connection up."""
        self._drop()
        super().close()


@contextlib.contextmanager
def s3_errors(address: str, kind: "type[SettingsError | StorageError]") -> Iterator[None]:
    """Turn boto3's exceptions into ``kind``, in words."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "an error")
        raise kind(f"{address} can't be used: S3 answered {code}.") from error
    except BotoCoreError as error:
        raise kind(f"{address} can't be used ({sentence(error)}).") from error


def _broken_reads() -> tuple[type[Exception], ...]:
    from botocore.exceptions import BotoCoreError, HTTPClientError
    from urllib3.exceptions import HTTPError

    return (BotoCoreError, HTTPClientError, HTTPError, OSError)


def _broken_read(error: BaseException) -> str:
    from botocore.exceptions import ReadTimeoutError

    return "S3 fell silent" if isinstance(error, ReadTimeoutError) else sentence(error)


def sentence(error: BaseException) -> str:
    """What ``error`` says, on one line, without a full stop."""
    return " ".join(str(error).split()).rstrip(".")
