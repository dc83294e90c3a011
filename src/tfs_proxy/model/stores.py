"""Downloads of ``gs://``, ``az://`` and ``https://`` addresses by obstore, and of ``s3://`` by `model.s3`.

obstore can't list a bucket with keys like ``a//b`` or ``../a``, nor by a prefix within a name, and S3's
batch jobs have both: so S3 stays with boto3. obstore is imported only when such an address is used; it finds
credentials, accounts and emulators by the variables of Google's and Azure's own programs.
"""

import contextlib
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from tfs_proxy.model import s3
from tfs_proxy.model.progress import ProgressLog
from tfs_proxy.model.s3 import ChosenObjects, StoredObject, disk_errors
from tfs_proxy.values.errors import ArchiveError
from tfs_proxy.values.names import USER_IN_URL
from tfs_proxy.values.processes import growing_pause
from tfs_proxy.wire.s3_client import CONNECT_SECONDS, S3_SCHEME

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

WEB_SCHEMES = ("https://", "http://")
SCHEMES = (S3_SCHEME, "gs://", "az://", *WEB_SCHEMES)
"""Beginnings of the addresses of archives and folders that are not on this machine."""

PART_BYTES = 8 << 20
_OPTIONS: Mapping[str, Any] = {
    "client_options": {"connect_timeout": f"{CONNECT_SECONDS:g}s", "timeout": "120s", "allow_http": True},
    "retry_config": {"max_retries": 5, "retry_timeout": timedelta(seconds=60)},
}
"""Limits of one request, which asks for one part."""

ATTEMPTS = 5
LONGEST_PAUSE_SECONDS = 5.0
_CREDENTIALS = {
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS to a key file, or GOOGLE_SKIP_SIGNATURE=true for a public "
    "bucket, or give the machine a service account",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_KEY or the "
    "variables of a service principal, or give the machine an identity",
    "http": "take an address that has them, such as a signed one",
}
_NO_CREDENTIALS = ("token request", "Account must be specified", "401 Unauthorized", "403 Forbidden")
_UNREACHABLE = {
    "UnknownIssuer": "no CA that is trusted here has signed its certificate: set SSL_CERT_FILE to a PEM file "
    "of CAs with its own",
    "CaUsedAsEndEntity": "its certificate is a CA's own, as openssl req -x509 makes it: make it anew with "
    "-addext basicConstraints=critical,CA:FALSE, and set SSL_CERT_FILE to its PEM file",
    "BadSignature": "another CA of that name has signed its certificate: set SSL_CERT_FILE to its PEM file",
    "InvalidCertificate": "its certificate is for another name or time: take its name, or renew it",
    "InvalidContentType": "it does not speak TLS there: take http://, or another port",
    "dns error": "there is no host of this name: check the address, and this machine's name server",
    "ConnectionRefused": "nothing listens at this host and port: check them, and HTTPS_PROXY",
    "TimedOut": "it did not answer in time: check the network, and HTTPS_PROXY",
}
"""Causes of failed connections by what obstore's debugging text calls them, and what to do."""


def is_remote(location: str) -> bool:
    """True if ``location`` is the address of a store, and no path."""
    return location.startswith(SCHEMES)


def download(address: str, folder: Path, cancelled: threading.Event | None = None) -> Path:
    """Download ``address`` into ``folder`` as `s3.download` does; an ``https://`` address is one archive."""
    if address.startswith(S3_SCHEME):
        return s3.download(address, folder, cancelled)
    shown = shown_address(address)
    store, key = _store_of(address)
    with disk_errors(shown), _store_errors(shown):
        chosen = ChosenObjects.of(_objects(store, key, address), key, shown)
        progress = ProgressLog(f"Downloading {shown}", cancelled)
        total = sum(item.size for item in chosen.paths.values())
        try:
            for path, item in chosen.paths.items():
                _fetch(store, item, folder / path, lambda count: progress.add(count, total))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        progress.finish()
    return chosen.result(folder)


def objects_at(address: str, client: "Callable[[], S3Client]") -> Sequence[StoredObject]:
    """List what `download` would fetch of ``address`` now, by ``client()`` if in S3; raises ArchiveError."""
    if address.startswith(S3_SCHEME):
        return s3.objects_at(address, client)
    shown = shown_address(address)
    store, key = _store_of(address)
    with _store_errors(shown):
        objects = _objects(store, key, address)
        return s3.served_objects(objects, key)


def keys_below(address: str, client: "Callable[[], S3Client]") -> Iterator[str]:
    """Keys below ``address``, which ends with a slash, relative to it; by ``client()`` if in S3.

    Raises ArchiveError.
    """
    if address.startswith(WEB_SCHEMES):
        raise ArchiveError(
            f"{shown_address(address)} can't be listed: give a prefix at s3://, gs:// or az://."
        )
    if address.startswith(S3_SCHEME):
        yield from s3.keys_below(address, client)
        return
    store, prefix = _store_of(address)
    with _store_errors(address):
        yield from (item.key.removeprefix(prefix) for item in _listed(store, prefix))


def shown_address(address: str) -> str:
    """``address`` as messages may have it: without a signature, user and password."""
    if not address.startswith(WEB_SCHEMES):
        return address
    return USER_IN_URL.sub("", address.partition("?")[0])


def _store_of(address: str) -> tuple[Any, str]:
    """The store of ``address``, and the key there. Raises ArchiveError if it is malformed."""
    from obstore.store import AzureStore, GCSStore, HTTPStore

    parts = urlsplit(address)
    shown = shown_address(address)
    if not parts.netloc:
        raise ArchiveError(f"{shown} is no address of a store: after {parts.scheme}:// comes a name.")
    with _store_errors(shown):
        if address.startswith(WEB_SCHEMES):
            folder, _, name = parts.path.rpartition("/")
            base = parts._replace(path=folder).geturl()
            return HTTPStore(base, **_OPTIONS), unquote(name)
        # A key may have a "?" or a "#".
        bucket, _, key = address.partition("://")[2].partition("/")
        kind = GCSStore if parts.scheme == "gs" else AzureStore
        return kind(bucket, **_OPTIONS), key


def _objects(store: Any, key: str, address: str) -> Sequence[StoredObject]:
    """List the object called ``key`` if there is one, else all objects below it."""
    import obstore

    if key and not key.endswith("/"):
        try:
            # A signed address may be for GET alone.
            meta = obstore.get(store, key).meta
            return [StoredObject(key, meta["size"], _etag(meta))]
        except FileNotFoundError:
            if address.startswith(WEB_SCHEMES):
                raise
        key += "/"
    elif address.startswith(WEB_SCHEMES):
        raise ArchiveError(f"{shown_address(address)} can't be served: over HTTPS, give a model.tar.gz.")
    objects = list(_listed(store, key))
    if not objects:
        raise ArchiveError(
            f"There is no {address}: no object has this key, and none begins with it and a slash."
        )
    return objects


def _listed(store: Any, prefix: str) -> Iterator[StoredObject]:
    """Objects below ``prefix``, without the empty ones that mark folders, whose slash obstore cuts off."""
    import obstore

    found = [meta for chunk in obstore.list(store, prefix or None) for meta in chunk]
    folders = {str(parent) for meta in found for parent in Path(meta["path"]).parents} | {prefix.rstrip("/")}
    for meta in found:
        if meta["size"] or meta["path"] not in folders:
            yield StoredObject(meta["path"], meta["size"], _etag(meta))


def _etag(meta: Any) -> str:
    return (meta["e_tag"] or str(meta["last_modified"])).strip('"')


def _fetch(store: Any, item: StoredObject, path: Path, add: Callable[[int], None]) -> None:
    """Write an object to ``path`` part by part, all of one version; raises ArchiveError if it changes."""
    import obstore
    from obstore.exceptions import NotSupportedError

    path.parent.mkdir(parents=True, exist_ok=True)
    add(0)
    with path.open("wb") as file:
        while (at := file.tell()) < item.size:
            try:
                file.write(_read(store, item, at, min(at + PART_BYTES, item.size)))
            except NotSupportedError:  # a web server without ranges
                for chunk in _pieces(obstore.get(store, item.key), item, item.size):
                    file.write(chunk)
                    add(len(chunk))
                return
            add(file.tell() - at)


def _read(store: Any, item: StoredObject, begin: int, end: int) -> bytes:
    """Read a range of an object, again if the connection breaks."""
    import obstore
    from obstore.exceptions import GenericError

    attempt = 0
    while True:
        try:
            return b"".join(
                _pieces(obstore.get(store, item.key, options={"range": (begin, end)}), item, end - begin)
            )
        except GenericError:
            attempt += 1
            if attempt == ATTEMPTS:
                raise
            time.sleep(growing_pause(attempt, 0.1, LONGEST_PAUSE_SECONDS))


def _pieces(answer: Any, item: StoredObject, size: int) -> Iterator[bytes]:
    """Yield the ``size`` bytes of an answer; raises ArchiveError for others, and for another version."""
    changed = ArchiveError(f"{item.key} has changed while it was downloaded: try again.")
    if (_etag(answer.meta), answer.meta["size"]) != (item.etag, item.size):
        raise changed
    left = size
    for piece in answer.stream():
        left -= len(piece)
        if left < 0:
            raise changed
        yield piece


@contextlib.contextmanager
def _store_errors(shown: str) -> Iterator[None]:
    """Turn obstore's exceptions into ArchiveError with a sentence that says what to do."""
    from obstore import exceptions as store

    try:
        yield
    except (store.BaseError, FileNotFoundError, ValueError) as error:
        text, _, details = str(error).partition("Debug source")
        said = USER_IN_URL.sub("", re.sub(r"\?\S*", "", text))  # no signature
        if isinstance(error, FileNotFoundError) or "404 Not Found" in said:
            raise ArchiveError(f"There is no {shown}: check the store's name and the key.") from error
        denied = (store.PermissionDeniedError, store.UnauthenticatedError)
        if isinstance(error, denied) or any(text in said for text in _NO_CREDENTIALS):
            remedy = _CREDENTIALS["http" if shown.startswith(WEB_SCHEMES) else shown.partition(":")[0]]
            raise ArchiveError(f"{shown} can't be used with these credentials, or none: {remedy}.") from error
        causes = (cause for sign, cause in _UNREACHABLE.items() if sign in details)
        cause = next(causes, f"{' '.join(said.split())[:300]}")
        raise ArchiveError(f"{shown} can't be read: {cause}.") from error
