"""Files of records in S3; an object is there when its file is complete."""

from typing import TYPE_CHECKING

from tfs_proxy.data.capture.files import CaptureFailed
from tfs_proxy.values.errors import TfsProxyError
from tfs_proxy.wire.s3_client import parse_address, s3_client, s3_errors

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CONNECTIONS = 1
TIMEOUT_SECONDS = 20.0
"""Time that S3 may be silent before a request is sent again; records wait in the meantime, or are dropped."""


class CaptureRefused(TfsProxyError):
    """S3 did not take an object."""


class Bucket:
    """An ``s3://`` address; the client is made for the first object, by the thread that writes."""

    def __init__(self, address: str) -> None:
        self._bucket, prefix = parse_address(address)
        self._prefix = prefix.rstrip("/") + "/" if prefix.strip("/") else ""
        self._client: S3Client | None = None

    def create(self, path: str) -> "S3File":
        return S3File(self, self._prefix + path)

    def put(self, key: str, body: bytes) -> None:
        """Write one object; raises CaptureRefused."""
        with s3_errors(f"s3://{self._bucket}/{key}", CaptureRefused):
            self._client = self._client or s3_client(CONNECTIONS, TIMEOUT_SECONDS)
            self._client.put_object(
                Bucket=self._bucket, Key=key, Body=body, ContentType="application/jsonlines"
            )


class S3File:
    """Lines in memory, until `close` writes them as one object."""

    def __init__(self, bucket: Bucket, key: str) -> None:
        self._bucket, self._key = bucket, key
        self._content = bytearray()
        self.unsaved = 0

    @property
    def size(self) -> int:
        return len(self._content)

    def append(self, line: bytes) -> int:
        self._content += line
        self.unsaved += 1
        return 0

    def close(self) -> int:
        records = self.unsaved
        try:
            self._bucket.put(self._key, bytes(self._content))
        except Exception as error:  # every failure must be counted
            raise CaptureFailed(records, str(error).rstrip(".")) from error
        finally:
            self.unsaved = 0
        return records
