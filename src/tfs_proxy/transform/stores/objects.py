"""Finds the objects of a job's input: a folder, a file, a prefix in S3 or a manifest."""

import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from tfs_proxy.archive.s3_client import S3_SCHEME
from tfs_proxy.errors import SettingsError
from tfs_proxy.transform.job import MANIFEST
from tfs_proxy.transform.stores.interface import InputObject
from tfs_proxy.transform.stores.local import local_object, local_objects
from tfs_proxy.transform.stores.s3 import CONCURRENT_HEADS, S3Stream, s3_object, s3_objects

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

S3ClientFactory = Callable[[], "S3Client"]
"""Gives the process's S3 client, which only inputs in S3 need."""


def objects_of(address: str, data_type: str, client: S3ClientFactory) -> list[InputObject]:
    """All objects of an input, sorted by name; no two have the same name.

    Raises SettingsError if there are none, or if the input can't be read.
    """
    if data_type == MANIFEST:
        objects = list(_manifest_objects(address, client))
    elif address.startswith(S3_SCHEME):
        objects = list(s3_objects(client(), address))
    else:
        objects = list(local_objects(Path(address)))
    if not objects:
        raise SettingsError(f"The input {address} has no objects.")
    objects.sort(key=lambda item: item.name)
    for one, other in pairwise(objects):
        if one.name == other.name:
            raise SettingsError(f"{one.address} and {other.address} would have the same output.")
    return objects


def shard(items: Iterable[InputObject], index: int, count: int) -> list[InputObject]:
    """The objects of machine ``index`` (from 0) of ``count``: every ``count``-th by key."""
    return [item for n, item in enumerate(items) if n % count == index]


def _manifest_objects(address: str, client: S3ClientFactory) -> Iterator[InputObject]:
    """Read ``[{"prefix": "s3://…/"}, "key", …]``; the prefix may be a local folder too."""
    entries = _read_manifest(address, client)
    prefix, *names = entries
    if not isinstance(prefix, dict) or not isinstance(prefix.get("prefix"), str):
        raise SettingsError(f'The manifest {address} must begin with {{"prefix": "s3://..."}}.')
    keys = [_checked_key(address, name) for name in names]
    if prefix["prefix"].startswith(S3_SCHEME):
        s3 = client()
        with ThreadPoolExecutor(CONCURRENT_HEADS) as heads:
            yield from heads.map(lambda key: s3_object(s3, prefix["prefix"] + key, key), keys)
    else:
        yield from (local_object(Path(prefix["prefix"]) / key, key) for key in keys)


def _checked_key(address: str, name: object) -> str:
    if not isinstance(name, str) or not name:
        raise SettingsError(f"The manifest {address} lists {name!r}, which is not a key.")
    return name


def _read_manifest(address: str, client: S3ClientFactory) -> list[object]:
    try:
        if address.startswith(S3_SCHEME):
            text = S3Stream(client(), s3_object(client(), address, address)).readall() or b""
        else:
            text = Path(address).read_bytes()
        entries = json.loads(text)
    except OSError as error:
        raise SettingsError(f"The manifest {address} can't be read: {error.strerror}.") from error
    except ValueError as error:
        raise SettingsError(f"The manifest {address} is not JSON: {error}.") from error
    if not isinstance(entries, list) or not entries:
        raise SettingsError(f"The manifest {address} must be a list of a prefix and keys.")
    return entries
