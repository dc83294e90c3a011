"""Reads and writes what asynchronous requests name: objects in S3, or files by ``file://``."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from tfs_proxy.archive.s3_client import S3_SCHEME, parse_address, s3_client, s3_errors
from tfs_proxy.errors import ArchiveError, SettingsError, TfsProxyError
from tfs_proxy.memory import MEGABYTE
from tfs_proxy.names import printable

FILE_SCHEME = "file://"
MOST_BYTES = 1024 * MEGABYTE
"""The largest request that asynchronous inference takes (docs/reference/sagemaker.md)."""


class LocationFailed(TfsProxyError):
    """An object or file can't be read or written; the text says which, and why."""


def address_of(member: str, text: str, folder: Path) -> str:
    """An ``s3://`` or ``file://`` address without a slash at its end; a path starts from ``folder``.

    Raises SettingsError that names AWS's ``member`` for any other.
    """
    if text.startswith(S3_SCHEME):
        try:
            parse_address(text)
        except ArchiveError as error:
            raise SettingsError(f"{member}: {error}") from None
        return text.rstrip("/")
    if "://" in text and not text.startswith(FILE_SCHEME):
        raise SettingsError(f"{member} {printable(text)} can't be used here: take s3://, file:// or a path.")
    return _path(text, folder).as_uri()


def read_location(address: str) -> bytes:
    """The bytes at an ``s3://`` or ``file://`` address; raises LocationFailed."""
    if not address.startswith(S3_SCHEME):
        return _read_file(_path(address, Path("/")))
    try:
        bucket, key = parse_address(address)
    except ArchiveError as error:
        raise LocationFailed(str(error)) from None
    with s3_errors(address, LocationFailed):
        answer = s3_client().get_object(Bucket=bucket, Key=key)
        _check_size(address, answer["ContentLength"])
        return answer["Body"].read()


def write_location(address: str, body: bytes, content_type: str) -> None:
    """Write an object or a file, whose folder is made; raises LocationFailed."""
    if not address.startswith(S3_SCHEME):
        _write_file(_path(address, Path("/")), body)
        return
    bucket, key = parse_address(address)
    with s3_errors(address, LocationFailed):
        s3_client().put_object(Bucket=bucket, Key=key, Body=body, ContentType=content_type)


def _path(address: str, folder: Path) -> Path:
    text = unquote(urlsplit(address).path) if address.startswith(FILE_SCHEME) else address
    return (folder / text).absolute()


def _read_file(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise LocationFailed(f"There is no file {path}.")
        _check_size(str(path), path.stat().st_size)
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise LocationFailed(f"{printable(str(path))} can't be read: {error}.") from error


def _write_file(path: Path, body: bytes) -> None:
    """Write it whole or not at all: whoever waits for it must not see a part."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(body)
        unfinished.replace(path)
    except OSError as error:
        raise LocationFailed(f"{path} can't be written: {error.strerror}.") from error


def _check_size(place: str, size: int) -> None:
    if size > MOST_BYTES:
        raise LocationFailed(f"{place} has {size} bytes, and a request at most {MOST_BYTES}.")
