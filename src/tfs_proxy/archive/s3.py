"""``s3://`` addresses -> files on disk, for `fetch`; boto3 is imported only when one is used.

Endpoints, regions and credentials are boto3's own business: its variables and files count.
"""

import logging
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from tfs_proxy.archive.extract import Limits
from tfs_proxy.archive.progress import ProgressLog
from tfs_proxy.errors import ArchiveError
from tfs_proxy.layout import ARCHIVE_NAME

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

S3_SCHEME = "s3://"
MAX_PART_BYTES = 255
CONNECT_SECONDS = 10
NOT_FOUND = frozenset({"404", "NoSuchKey", "NoSuchBucket", "NotFound"})
FORBIDDEN = frozenset({"403", "AccessDenied", "AllAccessDisabled", "Forbidden"})
BAD_CREDENTIALS = frozenset(
    {"ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch", "TokenRefreshRequired"}
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class S3Object:
    """One object as S3 lists it; ``size`` in bytes."""

    key: str
    size: int


def download(address: str, folder: Path, limits: Limits) -> Path:
    """Fetch ``address`` below ``folder``, which must not exist yet; return what is there then.

    That is a file for an object, and ``folder`` for a prefix (ending in ``/``, or naming no object).
    Of a prefix with a ``model.tar.gz`` only that is fetched. Raises ArchiveError; then, and on any
    other exception, nothing of ``folder`` is left.
    """
    bucket, key = parse_address(address)
    with _boto_errors(address):
        client = _client()
        objects = _objects(client, bucket, key, address)
        prefix = _prefix_of(key, objects)
        archives = [one for one in objects if prefix is not None and one.key == prefix + ARCHIVE_NAME]
        if prefix is None or archives:
            chosen = {Path(ARCHIVE_NAME): (archives or objects)[0]}
        else:
            chosen = relative_paths(objects, prefix, address)
        check_size(chosen.values(), address, limits)
        _fetch_all(client, bucket, {folder / path: one for path, one in chosen.items()}, folder, address)
    return folder / ARCHIVE_NAME if prefix is None or archives else folder


def parse_address(address: str) -> tuple[str, str]:
    """Split ``s3://BUCKET/KEY`` into both; KEY may be empty. Raises ArchiveError on a bad one."""
    match = re.fullmatch(r"s3://([A-Za-z0-9][A-Za-z0-9._-]{1,254})(?:/(.*))?", address, re.DOTALL)
    if match is None:
        raise ArchiveError(
            f"{address} is no address in S3: it must be s3://BUCKET/KEY or s3://BUCKET/PREFIX/."
        )
    return match[1], match[2] or ""


def relative_paths(objects: Iterable[S3Object], prefix: str, address: str) -> dict[Path, S3Object]:
    """Give each object below ``prefix`` its path, as SageMaker does (contract 1.2).

    The empty objects with which consoles mark folders are left out. Raises ArchiveError naming the
    key that is no safe path, or is both a file and a folder.
    """
    paths: dict[Path, S3Object] = {}
    for one in objects:
        rest = one.key.removeprefix(prefix)
        if one.size == 0 and (not rest or rest.endswith("/")):
            continue
        parts = rest.split("/")
        if any(
            part in {"", ".", ".."} or "\0" in part or len(part.encode()) > MAX_PART_BYTES for part in parts
        ):
            raise ArchiveError(f"{address} can't be served: its key {one.key!r} is no path of a file.")
        paths[Path(*parts)] = one
    for path in paths:
        for parent in list(path.parents)[:-1]:
            if parent in paths:
                raise ArchiveError(
                    f"{address} can't be served: {PurePosixPath(parent)} is both a file and a folder there."
                )
    return paths


def check_size(objects: Iterable[S3Object], address: str, limits: Limits) -> None:
    """Raise ArchiveError where there are no objects, too many, or too many bytes of them."""
    sizes = [one.size for one in objects]
    if not sizes:
        raise ArchiveError(
            f"{address} holds no objects: it must be an archive, or a prefix with a model below it."
        )
    if len(sizes) > limits.max_members:
        raise ArchiveError(f"{address} is refused: it has over {limits.max_members} objects.")
    if sum(sizes) > limits.max_bytes:
        raise ArchiveError(f"{address} is refused: it has {sum(sizes)} bytes, over {limits.max_bytes}.")


def _client() -> "S3Client":
    import boto3
    from botocore.config import Config

    return boto3.client("s3", config=Config(connect_timeout=CONNECT_SECONDS))


def _objects(client: "S3Client", bucket: str, key: str, address: str) -> Sequence[S3Object]:
    """The one object called ``key``, or else all below it."""
    from botocore.exceptions import ClientError

    if key and not key.endswith("/"):
        try:
            return [S3Object(key, client.head_object(Bucket=bucket, Key=key)["ContentLength"])]
        except ClientError as error:
            if _code(error.response) not in NOT_FOUND:
                raise
        key += "/"
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key)
    found = [S3Object(item["Key"], item["Size"]) for page in pages for item in page.get("Contents", [])]
    if not found:
        raise ArchiveError(
            f"There is no {address}: no object has this key, and none begins with it and a slash."
        )
    return found


def _prefix_of(key: str, objects: Sequence[S3Object]) -> str | None:
    """The prefix that ``objects`` were listed by, None where they are the one object ``key``."""
    if not key or key.endswith("/"):
        return key
    return None if objects[0].key == key else key + "/"


def _fetch_all(
    client: "S3Client", bucket: str, wanted: dict[Path, S3Object], folder: Path, address: str
) -> None:
    from boto3.s3.transfer import ProgressCallbackInvoker, TransferConfig, create_transfer_manager

    total = sum(one.size for one in wanted.values())
    progress = ProgressLog(f"Downloading {address}")
    subscriber = ProgressCallbackInvoker(lambda count: progress.add(count, total))
    try:
        with create_transfer_manager(client, TransferConfig()) as transfers:
            futures = []
            for path, one in wanted.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                futures.append(transfers.download(bucket, one.key, str(path), subscribers=[subscriber]))
            for future in futures:
                future.result()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    progress.finish()


@contextmanager
def _boto_errors(address: str) -> Iterator[None]:
    """Turn boto3's exceptions into ArchiveError sentences that say what to do."""
    from boto3.exceptions import Boto3Error
    from botocore import exceptions as boto

    try:
        yield
    except (boto.NoCredentialsError, boto.PartialCredentialsError, boto.ProfileNotFound) as error:
        raise ArchiveError(
            f"{address} can't be read without credentials ({_sentence(error)}): "
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE, or give the machine a role."
        ) from error
    except boto.ClientError as error:
        raise ArchiveError(_client_error(address, error.response)) from error
    except (boto.BotoCoreError, Boto3Error) as error:
        raise ArchiveError(
            f"{address} can't be fetched ({_sentence(error)}): look at the network, "
            "at AWS_ENDPOINT_URL_S3 and at AWS_REGION."
        ) from error
    except OSError as error:
        raise ArchiveError(f"{address} can't be stored: {error.strerror or error}.") from error


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _code(response: object) -> str:
    return str(response["Error"]["Code"]) if isinstance(response, dict) else ""


def _client_error(address: str, response: object) -> str:
    code = _code(response)
    if code in NOT_FOUND:
        return f"There is no {address}: look at the bucket's name and the key."
    if code in FORBIDDEN:
        return (
            f"S3 does not let these credentials read {address} ({code}): they need s3:GetObject on it, "
            "and s3:ListBucket on its bucket for a prefix."
        )
    if code in BAD_CREDENTIALS:
        return f"S3 does not accept the credentials for {address} ({code}): renew them."
    if code == "InvalidObjectState":
        return f"{address} is archived in a cold storage class: restore it first."
    return f"{address} can't be fetched: S3 answered {code}."
