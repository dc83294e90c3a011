"""The S3 client and the sentences for its errors, for archives and for batch transform.

boto3 is imported only when an ``s3://`` address is used; it finds endpoints, regions and credentials itself.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tfs_proxy.values.errors import ArchiveError, TfsProxyError
from tfs_proxy.values.names import S3_ADDRESS

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

S3_SCHEME = "s3://"
CONNECT_SECONDS = 10.0
S3_TIMEOUT_SECONDS = 60.0
DEFAULT_CONNECTIONS = 10
NOT_FOUND = frozenset({"404", "NoSuchKey", "NoSuchBucket", "NotFound"})
FORBIDDEN = frozenset({"403", "AccessDenied", "AllAccessDisabled", "Forbidden"})
BAD_CREDENTIALS = frozenset(
    {"ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch", "TokenRefreshRequired"}
)


def parse_address(address: str) -> tuple[str, str]:
    """Split ``s3://BUCKET/KEY`` into both; KEY may be empty. Raises ArchiveError if it is malformed."""
    match = re.fullmatch(S3_ADDRESS, address, re.DOTALL)
    if match is None:
        raise ArchiveError(
            f"{address} is not an S3 address: it must be s3://BUCKET/KEY or s3://BUCKET/PREFIX/."
        )
    return match[1], match[2] or ""


def s3_client(connections: int = DEFAULT_CONNECTIONS) -> "S3Client":
    """Make a client for ``connections`` threads; S3 may be silent for `S3_TIMEOUT_SECONDS`."""
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        config=Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=S3_TIMEOUT_SECONDS,
            max_pool_connections=connections,
        ),
    )


@contextlib.contextmanager
def s3_errors(address: str, error_type: type[TfsProxyError]) -> Iterator[None]:
    """Turn boto3's exceptions into ``error_type`` with a sentence that says what to do about ``address``."""
    from boto3.exceptions import Boto3Error
    from botocore import exceptions as boto

    try:
        yield
    except (boto.NoCredentialsError, boto.PartialCredentialsError, boto.ProfileNotFound) as error:
        raise error_type(
            f"{address} can't be used without credentials ({one_line(error)}): "
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE, or give the machine a role."
        ) from error
    except boto.ClientError as error:
        raise error_type(_refusal(address, error_code(error.response))) from error
    except (boto.BotoCoreError, Boto3Error) as error:
        refused = error.__context__  # an upload in parts failed
        if isinstance(refused, boto.ClientError):
            raise error_type(_refusal(address, error_code(refused.response))) from error
        raise error_type(
            f"{address} can't be reached ({one_line(error)}): check the network, "
            "AWS_ENDPOINT_URL_S3, AWS_REGION and, for another CA, AWS_CA_BUNDLE."
        ) from error


def error_code(response: object) -> str:
    """The error code of a refused call, for instance ``NoSuchKey``."""
    return str(response["Error"]["Code"]) if isinstance(response, dict) else ""


def one_line(error: BaseException) -> str:
    """The message of ``error`` on one line, without its full stop."""
    return " ".join(str(error).split()).rstrip(".")


def _refusal(address: str, code: str) -> str:
    if code in NOT_FOUND:
        return f"There is no {address}: check the bucket's name and the key."
    if code in FORBIDDEN:
        return (
            f"S3 does not let these credentials use {address} ({code}): they need s3:GetObject to read it, "
            "s3:ListBucket on its bucket to list a prefix, and s3:PutObject to write there."
        )
    if code in BAD_CREDENTIALS:
        return f"S3 does not accept the credentials for {address} ({code}): renew them."
    if code == "InvalidObjectState":
        return f"{address} is archived in a cold storage class: restore it first."
    return f"{address} can't be used: S3 answered {code}."
