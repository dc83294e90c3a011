"""Outputs in S3, written whole or not at all.

What is finished is told by the outputs themselves: their metadata carry the job's mark and the version
of what they were made from, so there is no state that could be lost or lag behind.
"""

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tfs_proxy.archive.s3 import parse_address
from tfs_proxy.errors import SettingsError
from tfs_proxy.transform.failures import StorageError
from tfs_proxy.transform.stores.interface import ERRORS, OUT, InputObject
from tfs_proxy.transform.stores.s3 import HEADS_AT_ONCE, s3_errors, sentence

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MARK, VERSION = "tfs-proxy-job", "tfs-proxy-input"
PART_BYTES = 8 * 1024 * 1024
PARTS_BEFORE_GROWTH = 1000
"""Parts grow after so many: S3 takes 10,000 at most."""
MAX_KEY_BYTES = 1024

log = logging.getLogger(__name__)


class S3Target:
    """A prefix of outputs."""

    def __init__(self, client: "S3Client", address: str) -> None:
        self._client = client
        self._bucket, prefix = parse_address(address)
        self._prefix = prefix if not prefix or prefix.endswith("/") else prefix + "/"
        self._old_keys: set[str] | None = None

    def check(self, items: list[InputObject]) -> None:
        """Raise SettingsError where a key would get too long."""
        for item in items:
            if len((self._prefix + item.name + OUT).encode()) > MAX_KEY_BYTES:
                raise SettingsError(f"The key {item.name!r} gets too long for S3 below the output prefix.")

    def prepare(self, items: list[InputObject]) -> None:
        """Take back the parts that a killed run has left of the same outputs, as far as that is allowed."""
        from botocore.exceptions import ClientError

        ours = {self._prefix + item.name + ending for item in items for ending in (OUT, ERRORS)}
        try:
            pages = self._client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._bucket, Prefix=self._prefix
            )
            left = [each for page in pages for each in page.get("Uploads", []) if each["Key"] in ours]
            for each in left:
                self._client.abort_multipart_upload(
                    Bucket=self._bucket, Key=each["Key"], UploadId=each["UploadId"]
                )
        except ClientError as error:
            log.info("parts that a killed run may have left are not looked for: %s", sentence(error))

    def finished(self, mark: str) -> dict[str, str]:
        """What the metadata of the outputs below the prefix say."""
        with s3_errors(f"s3://{self._bucket}/{self._prefix}", SettingsError):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix
            )
            there = [item["Key"] for page in pages for item in page.get("Contents", [])]
            self._old_keys = {key for key in there if key.endswith((OUT, ERRORS))}
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

    def remove(self, name: str, ending: str) -> None:
        """Remove an earlier run's object, unless `finished` has seen that there is none.

        Raises StorageError.
        """
        key = self._prefix + name + ending
        if self._old_keys is None or key in self._old_keys:
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
            log.warning("parts of %s are left in S3: %s", self._address, sentence(error))
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
