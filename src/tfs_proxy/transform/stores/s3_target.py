"""Writes outputs to S3, each of them whole or not at all.

The outputs themselves record what is finished: their metadata hold the job's fingerprint and the version
of the input, so there is no separate state that could be lost or be out of date.
"""

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tfs_proxy.archive.s3_client import one_line, parse_address, s3_errors
from tfs_proxy.errors import SettingsError
from tfs_proxy.transform.failures import StorageError
from tfs_proxy.transform.stores.interface import ERRORS, OUT, InputObject
from tfs_proxy.transform.stores.s3 import CONCURRENT_HEADS, list_keys

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

FINGERPRINT_KEY, VERSION_KEY = "tfs-proxy-job", "tfs-proxy-input"
PART_BYTES = 8 * 1024 * 1024
PARTS_BEFORE_GROWTH = 1000  # then parts grow, because S3 allows at most 10,000 of them
MAX_KEY_BYTES = 1024

log = logging.getLogger(__name__)


class S3Target:
    """The outputs below a prefix."""

    def __init__(self, client: "S3Client", address: str) -> None:
        self._client = client
        self._bucket, prefix = parse_address(address)
        self._prefix = prefix if not prefix or prefix.endswith("/") else prefix + "/"
        self._old_keys: set[str] | None = None

    def prepare(self, items: list[InputObject]) -> None:
        """Delete the parts that a killed run left of the same outputs, if the credentials allow that.

        Raises SettingsError if a key would be too long.
        """
        from botocore.exceptions import ClientError

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
        except ClientError as error:
            # Listing uploads is a permission of its own, which a job does not need otherwise.
            log.info("can't look for parts that a killed run may have left: %s", one_line(error))

    def finished(self, fingerprint: str) -> dict[str, str]:
        """Read the metadata of all outputs below the prefix."""
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
        """Append ``data``; sends full parts. Raises StorageError."""
        self._buffer += data
        if len(self._buffer) >= PART_BYTES * (1 + len(self._parts) // PARTS_BEFORE_GROWTH):
            self._send_part()

    def commit(self) -> None:
        """Make the object visible. Raises StorageError."""
        if self._upload is None:
            with s3_errors(self._address, StorageError):
                self._client.put_object(**self._location, Body=bytes(self._buffer), Metadata=self._metadata)
            return
        if self._buffer:
            self._send_part()
        with s3_errors(self._address, StorageError):
            self._client.complete_multipart_upload(
                **self._location,
                UploadId=self._upload,
                MultipartUpload={"Parts": self._parts},
            )
        self._upload = None

    def abort(self) -> None:
        """Delete the parts that were sent."""
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
                **self._location,
                UploadId=self._upload,
                PartNumber=number,
                Body=bytes(self._buffer),
            )
        self._parts.append({"PartNumber": number, "ETag": part["ETag"]})
        self._buffer.clear()
