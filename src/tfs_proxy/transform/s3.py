"""Objects in S3: listed, read with a second chance, and written whole or not at all.

boto3 is imported only when an ``s3://`` address is used; endpoints, regions and credentials are its
own business. What is finished is told by the outputs themselves: their metadata carry the job's mark
and the version of what they were made from, so there is no state that could be lost or lag behind.
"""

import contextlib
import io
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tfs_proxy.archive.s3 import parse_address
from tfs_proxy.errors import SettingsError
from tfs_proxy.transform.failures import StorageError
from tfs_proxy.transform.stores import ERRORS, OUT, InputObject

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

S3_SCHEME = "s3://"
MARK, VERSION = "tfs-proxy-job", "tfs-proxy-input"
PART_BYTES = 8 * 1024 * 1024
PARTS_BEFORE_GROWTH = 1000
"""Parts grow after so many: S3 takes 10,000 at most."""
READ_ATTEMPTS = 5
HEADS_AT_ONCE = 32
MAX_KEY_BYTES = 1024

log = logging.getLogger(__name__)


def s3_client(connections: int) -> "S3Client":
    """A client whose pool suits so many threads."""
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        config=Config(connect_timeout=10, max_pool_connections=connections, retries={"max_attempts": 5}),
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
                data = self._read(len(buffer))
            except _broken_reads() as error:
                self._drop()
                if attempt == READ_ATTEMPTS:
                    raise StorageError(f"it can't be read from S3 ({_sentence(error)})") from error
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


class S3Target:
    """A prefix of outputs."""

    def __init__(self, client: "S3Client", address: str) -> None:
        self._client = client
        self._bucket, prefix = parse_address(address)
        self._prefix = prefix if not prefix or prefix.endswith("/") else prefix + "/"
        self._old_errors: set[str] = set()

    def check(self, items: list[InputObject]) -> None:
        """Raise SettingsError where a key would get too long."""
        for item in items:
            if len((self._prefix + item.name + OUT).encode()) > MAX_KEY_BYTES:
                raise SettingsError(f"The key {item.name!r} gets too long for S3 below the output prefix.")

    def finished(self, mark: str) -> dict[str, str]:
        """What the metadata of the outputs below the prefix say."""
        with s3_errors(f"s3://{self._bucket}/{self._prefix}", SettingsError):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix
            )
            there = [item["Key"] for page in pages for item in page.get("Contents", [])]
            self._old_errors = {key for key in there if key.endswith(ERRORS)}
            keys = [key for key in there if key.endswith(OUT)]
            with ThreadPoolExecutor(HEADS_AT_ONCE) as heads:
                notes = list(heads.map(self._note, keys))
        return {
            key.removeprefix(self._prefix).removesuffix(OUT): note.get(VERSION, "")
            for key, note in zip(keys, notes, strict=True)
            if note.get(MARK) == mark
        }

    def create(self, name: str, mark: str, version: str) -> "S3Sink":
        """Begin an output; nothing is sent before the first part is full."""
        return S3Sink(self._client, self._bucket, self._prefix + name + OUT, {MARK: mark, VERSION: version})

    def create_errors(self, name: str) -> "S3Sink":
        """Begin an error file."""
        return S3Sink(self._client, self._bucket, self._prefix + name + ERRORS, {})

    def remove_errors(self, name: str) -> None:
        """Remove an earlier run's error file, if `finished` has seen one."""
        key = self._prefix + name + ERRORS
        if key in self._old_errors:
            with s3_errors(f"s3://{self._bucket}/{key}", StorageError):
                self._client.delete_object(Bucket=self._bucket, Key=key)

    def _note(self, key: str) -> dict[str, str]:
        return self._client.head_object(Bucket=self._bucket, Key=key)["Metadata"]


class S3Sink:
    """One output object: put at once where it is small, else a multipart upload."""

    def __init__(self, client: Any, bucket: str, key: str, metadata: dict[str, str]) -> None:
        self._client = client
        self._where = {"Bucket": bucket, "Key": key}
        self._metadata = metadata
        self._address = f"s3://{bucket}/{key}"
        self._buffer = bytearray()
        self._upload: str | None = None
        self._parts: list[dict[str, Any]] = []

    def write(self, data: bytes) -> None:
        """Add to it; sends full parts."""
        self._buffer += data
        if len(self._buffer) >= PART_BYTES * (1 + len(self._parts) // PARTS_BEFORE_GROWTH):
            self._send_part()

    def commit(self) -> None:
        """Let it appear."""
        if self._upload is None:
            with s3_errors(self._address, StorageError):
                self._client.put_object(**self._where, Body=bytes(self._buffer), Metadata=self._metadata)
            return
        if self._buffer:
            self._send_part()
        with s3_errors(self._address, StorageError):
            self._client.complete_multipart_upload(
                **self._where,
                UploadId=self._upload,
                MultipartUpload={"Parts": self._parts},
            )
        self._upload = None

    def abort(self) -> None:
        """Leave no part behind."""
        self._buffer.clear()
        if self._upload is None:
            return
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            self._client.abort_multipart_upload(**self._where, UploadId=self._upload)
        except (BotoCoreError, ClientError) as error:
            log.warning("parts of %s are left in S3: %s", self._address, _sentence(error))
        self._upload = None

    def _send_part(self) -> None:
        with s3_errors(self._address, StorageError):
            if self._upload is None:
                begun = self._client.create_multipart_upload(**self._where, Metadata=self._metadata)
                self._upload = begun["UploadId"]
            number = len(self._parts) + 1
            sent = self._client.upload_part(
                **self._where,
                UploadId=self._upload,
                PartNumber=number,
                Body=bytes(self._buffer),
            )
        self._parts.append({"PartNumber": number, "ETag": sent["ETag"]})
        self._buffer.clear()


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
        raise kind(f"{address} can't be used ({_sentence(error)}).") from error


def _broken_reads() -> tuple[type[Exception], ...]:
    from botocore.exceptions import BotoCoreError, HTTPClientError
    from urllib3.exceptions import HTTPError

    return (BotoCoreError, HTTPClientError, HTTPError, OSError)


def _sentence(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")
