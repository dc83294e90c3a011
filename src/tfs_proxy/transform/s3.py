"""Lists, reads and writes objects in S3; a broken read resumes where it stopped."""

import io
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tfs_proxy.transform.files import ERRORS, OUT, InputObject, LocalSink, LocalTarget
from tfs_proxy.transform.run_statistics import StorageError
from tfs_proxy.transform.sender import pause_seconds
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.wire.s3_client import one_line, parse_address, s3_errors

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectTypeDef

log = logging.getLogger(__name__)

READ_ATTEMPTS = 5
READ_BYTES = 128 * 1024  # small, so that a timeout loses little and every attempt makes progress
CONCURRENT_HEADS = 32

FINGERPRINT_KEY = "tfs-proxy-job"
VERSION_KEY = "tfs-proxy-input"

PART_BYTES = 8 * 1024 * 1024

PARTS_BEFORE_GROWTH = 1000  # then parts grow, because S3 allows at most 10,000 of them

MAX_KEY_BYTES = 1024


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
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        """Read up to the size of ``buffer``. Raises StorageError."""
        from botocore.exceptions import BotoCoreError, ReadTimeoutError
        from urllib3.exceptions import HTTPError

        if self._offset >= self._item.size:
            return 0
        for attempt in range(1, READ_ATTEMPTS + 1):
            try:
                data = self._read(min(len(buffer), READ_BYTES))
            except (BotoCoreError, HTTPError, OSError) as error:
                self._disconnect()
                if attempt == READ_ATTEMPTS:
                    is_silent = isinstance(error, ReadTimeoutError)
                    reason = "S3 stopped responding" if is_silent else one_line(error)
                    message = f"it can't be read from S3 at byte {self._offset} ({reason})"
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
        self._disconnect()
        super().close()


class S3Target:
    def __init__(self, client: "S3Client", address: str) -> None:
        self._client = client
        self._bucket, prefix = parse_address(address)
        self._prefix = prefix if not prefix or prefix.endswith("/") else prefix + "/"
        self._old_keys: set[str] | None = None

    def prepare(self, items: list[InputObject]) -> None:
        """Delete the parts that killed runs and lost nodes left of these outputs, if that is allowed.

        Raises SettingsError if a key would be too long.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        for item in items:
            if len((self._prefix + item.name + OUT).encode()) > MAX_KEY_BYTES:
                raise SettingsError(
                    f"The key {item.name!r} is too long for S3 below the output prefix: shorten one."
                )
        ours = {self._prefix + item.name + ending for item in items for ending in (OUT, ERRORS)}
        try:
            pages = self._client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._bucket, Prefix=self._prefix
            )
            for upload in [upload for page in pages for upload in page.get("Uploads", [])]:
                if upload["Key"] in ours:
                    self._client.abort_multipart_upload(
                        Bucket=self._bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                    )
        except (BotoCoreError, ClientError) as error:
            # Listing uploads is a permission of its own, which a job does not need otherwise.
            log.info("can't look for parts that a killed run may have left: %s", one_line(error))

    def finished(self, fingerprint: str) -> dict[str, str]:
        with s3_errors(f"s3://{self._bucket}/{self._prefix}", SettingsError):
            keys = [item["Key"] for item in list_keys(self._client, self._bucket, self._prefix)]
            self._old_keys = {key for key in keys if key.endswith((OUT, ERRORS))}
            outputs = [key for key in keys if key.endswith(OUT)]
            with ThreadPoolExecutor(CONCURRENT_HEADS) as heads:
                metadata = list(heads.map(self._metadata, outputs))
        return {
            key.removeprefix(self._prefix).removesuffix(OUT): values.get(VERSION_KEY, "")
            for key, values in zip(outputs, metadata, strict=True)
            if values.get(FINGERPRINT_KEY) == fingerprint
        }

    def create(self, item: InputObject, ending: str, fingerprint: str) -> "S3Sink":
        """Begin an output; nothing is sent before the first part is full."""
        metadata = {FINGERPRINT_KEY: fingerprint, VERSION_KEY: item.version} if ending == OUT else {}
        return S3Sink(self._client, self._bucket, self._prefix + item.name + ending, metadata)

    def remove(self, name: str, ending: str) -> None:
        """Remove an earlier run's object, unless `finished` found that there is none.

        Raises StorageError.
        """
        key = self._prefix + name + ending
        if self._old_keys is None or key in self._old_keys:
            with s3_errors(f"s3://{self._bucket}/{key}", StorageError):
                self._client.delete_object(Bucket=self._bucket, Key=key)

    def _metadata(self, key: str) -> dict[str, str]:
        return self._client.head_object(Bucket=self._bucket, Key=key)["Metadata"]


class S3Sink:
    """One output object: a single put if it is small, else a multipart upload."""

    def __init__(self, client: Any, bucket: str, key: str, metadata: dict[str, str]) -> None:
        self._client = client
        self._location = {"Bucket": bucket, "Key": key}
        self._metadata = metadata
        self._address = f"s3://{bucket}/{key}"
        self._buffer = bytearray()
        self._upload: str | None = None
        self._parts: list[dict[str, Any]] = []

    def write(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) >= PART_BYTES * (1 + len(self._parts) // PARTS_BEFORE_GROWTH):
            self._send_part()

    def commit(self) -> None:
        if self._upload is None:
            with s3_errors(self._address, StorageError):
                self._client.put_object(**self._location, Body=bytes(self._buffer), Metadata=self._metadata)
            return
        if self._buffer:
            self._send_part()
        with s3_errors(self._address, StorageError):
            self._client.complete_multipart_upload(
                **self._location, UploadId=self._upload, MultipartUpload={"Parts": self._parts}
            )
        self._upload = None

    def abort(self) -> None:
        self._buffer.clear()
        if self._upload is None:
            return
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            self._client.abort_multipart_upload(**self._location, UploadId=self._upload)
        except (BotoCoreError, ClientError) as error:
            log.warning("parts of %s remain in S3: %s", self._address, one_line(error))
        self._upload = None

    def _send_part(self) -> None:
        with s3_errors(self._address, StorageError):
            if self._upload is None:
                response = self._client.create_multipart_upload(**self._location, Metadata=self._metadata)
                self._upload = response["UploadId"]
            number = len(self._parts) + 1
            part = self._client.upload_part(
                **self._location, UploadId=self._upload, PartNumber=number, Body=bytes(self._buffer)
            )
        self._parts.append({"PartNumber": number, "ETag": part["ETag"]})
        self._buffer.clear()


OutputTarget = LocalTarget | S3Target
OutputSink = LocalSink | S3Sink
