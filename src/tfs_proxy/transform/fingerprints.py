"""The fingerprint of a job: outputs with the same fingerprint need not be made again."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tfs_proxy.archive.s3_client import S3_SCHEME
from tfs_proxy.errors import SettingsError
from tfs_proxy.transform.job import Job
from tfs_proxy.transform.stores.objects import S3ClientFactory
from tfs_proxy.transform.stores.s3 import s3_objects

_READ_BYTES = 1 << 20
_WITHOUT_EFFECT = ("name", "output", "max_concurrent", "timeout_seconds", "max_retries")
"""Fields of a job that can't change what its outputs hold."""


def job_fingerprint(job: Job, on_error: str, served: str) -> str:
    """A digest of all that outputs depend on; ``served`` identifies the model (see `served_content`)."""
    parameters = {name: value for name, value in asdict(job).items() if name not in _WITHOUT_EFFECT}
    text = json.dumps({**parameters, "on_error": on_error, "model": served}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def model_digest(model: str, client: S3ClientFactory) -> str:
    """A digest of a model archive or folder: of its content or, in S3, of its ETags.

    Raises SettingsError if there is no such model.
    """
    pairs: Iterator[tuple[str, str]]
    if model.startswith(S3_SCHEME):
        pairs = ((item.name, item.version) for item in s3_objects(client(), model))
    else:
        pairs = _contents(Path(model))
    digest = hashlib.sha256()
    for name, content in sorted(pairs):
        digest.update(json.dumps([name, content]).encode())
    return digest.hexdigest()


def _contents(path: Path) -> Iterator[tuple[str, str]]:
    if not path.exists():
        raise SettingsError(f"There is no model {path}: give a model.tar.gz, a folder or an s3:// address.")
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    for file in files:
        with file.open("rb") as content:
            yield file.relative_to(path).as_posix(), hashlib.file_digest(content, "sha256").hexdigest()
