"""The objects of a job, and those of them that an equal run has not finished before."""

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict, replace

from tfs_proxy.model.stores import is_remote, objects_at
from tfs_proxy.transform.batches import asks_model, is_captured
from tfs_proxy.transform.files import InputObject, local_object, local_objects
from tfs_proxy.transform.job import LINE, MANIFEST, PRESENT, ExecutionPlan
from tfs_proxy.transform.local_engine import is_too_large
from tfs_proxy.transform.options import TransformOptions, batch_client, fetch_plan
from tfs_proxy.transform.run_statistics import RunStatistics, Workload
from tfs_proxy.transform.s3 import CONCURRENT_HEADS, OutputTarget, S3Stream, s3_object, s3_objects
from tfs_proxy.transform.sender import EndpointAddress
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.layout import ANYWHERE, LocalFiles
from tfs_proxy.wire.media_types import CSV, IMAGE, JSON_LINES, of_file
from tfs_proxy.wire.s3_client import S3_SCHEME

log = logging.getLogger(__name__)

_WITHOUT_EFFECT = ("name", "output", "max_concurrent", "timeout_seconds", "max_retries")
"""Fields of a job that can't change what its outputs hold."""


def objects_of(address: str, data_type: str, files: LocalFiles = ANYWHERE) -> list[InputObject]:
    """All objects of an input, sorted by name; no two have the same name.

    Raises SettingsError if there are none, or if the input can't be read, or is not one of ``files``.
    """
    files.check("The input", address)
    if data_type == MANIFEST:
        objects = list(_manifest_objects(address, files))
    elif address.startswith(S3_SCHEME):
        objects = list(s3_objects(batch_client(), address))
    else:
        objects = list(_held(local_objects(Path(address)), files))
    if not objects:
        raise SettingsError(f"The input {address} has no objects.")
    objects.sort(key=lambda item: item.name)
    for one, other in pairwise(objects):
        if one.name == other.name:
            raise SettingsError(f"{one.address} and {other.address} would have the same output.")
    return objects


def _held(objects: Iterable[InputObject], files: LocalFiles) -> Iterator[InputObject]:
    """The objects, up to one that is none of ``files``: a folder to which a link leads may be large."""
    for item in objects:
        files.check("The input", item.address)
        yield item


def typed(options: TransformOptions, items: Sequence[InputObject]) -> TransformOptions:
    """The options with what the names of ``items`` say. Raises SettingsError if the job can't be done so."""
    job = options.job
    kinds = {of_file(item.name) for item in items}
    if not job.by_names:
        return options
    if len(kinds) > 1 and all(kind and kind.startswith("image/") for kind in kinds):
        kinds = {IMAGE}
    kind = kinds.pop() if len(kinds) == 1 and "content_type" in job.by_names else None
    replays = kind is not None and is_captured(partial(options.open_object, items[0]), job, items[0].name)
    found = {"content_type": kind} if kind and not replays else {}
    if found and kind in {CSV, JSON_LINES}:
        header = "; header=present" if kind == CSV and job.csv_header == PRESENT else ""
        every = {"content_type": f"{kind}{header}", "split_type": LINE, "assemble_with": LINE, "accept": kind}
        found = {name: value for name, value in every.items() if name in job.by_names}
    if words := " ".join(f"--{name.replace('_', '-')} '{value}'" for name, value in found.items()):
        log.info("by the names of the objects: %s", words)
    return replace(options, job=replace(job, by_names=(), **found))


def _manifest_objects(address: str, files: LocalFiles) -> Iterator[InputObject]:
    """Read ``[{"prefix": "s3://…/"}, "key", …]``; the prefix may be a local folder too."""
    try:
        if address.startswith(S3_SCHEME):
            text = S3Stream(batch_client(), s3_object(batch_client(), address, address)).readall() or b""
        else:
            text = Path(address).read_bytes()
        entries = json.loads(text)
    except OSError as error:
        raise SettingsError(f"The manifest {address} can't be read: {error.strerror}.") from error
    except ValueError as error:
        raise SettingsError(f"The manifest {address} is not JSON: {error}.") from error
    if not isinstance(entries, list) or not entries:
        raise SettingsError(f"The manifest {address} must be a list of a prefix and keys.")
    prefix, *names = entries
    if not isinstance(prefix, dict) or not isinstance(prefix.get("prefix"), str):
        raise SettingsError(f'The manifest {address} must begin with {{"prefix": "s3://..."}}.')
    for name in names:
        if not isinstance(name, str) or not name:
            raise SettingsError(f"The manifest {address} lists {name!r}, which is not a key.")
    keys = [str(name) for name in names]
    if prefix["prefix"].startswith(S3_SCHEME):
        s3 = batch_client()
        with ThreadPoolExecutor(CONCURRENT_HEADS) as heads:
            yield from heads.map(lambda key: s3_object(s3, prefix["prefix"] + key, key), keys)
    else:
        for key in keys:
            files.check("The input", str(path := Path(prefix["prefix"]) / key))
            yield local_object(path, key)


class Leftovers(Struct, frozen=True):
    """The objects to do, the job's fingerprint and the statistics of the run."""

    items: list[InputObject]
    fingerprint: str
    statistics: RunStatistics


def find_leftovers(
    options: TransformOptions, items: Sequence[InputObject], target: OutputTarget
) -> Leftovers:
    """Compare ``items`` with what ``target`` knows to be finished; the model need not be served for that."""
    on_error = options.on_error if options.max_bad is None else f"{options.on_error} {options.max_bad.text}"
    parameters = {name: value for name, value in asdict(options.job).items() if name not in _WITHOUT_EFFECT}
    text = json.dumps({**parameters, "on_error": on_error, "model": served_content(options)}, sort_keys=True)
    fingerprint = hashlib.sha256(text.encode()).hexdigest()[:32]
    finished = target.finished(fingerprint) if options.resume else {}
    leftovers = [item for item in items if finished.get(item.name) != item.version]
    all_bytes = sum(item.size for item in items)
    finished_bytes = all_bytes - sum(item.size for item in leftovers)
    finished_count = len(items) - len(leftovers)
    statistics = RunStatistics(Workload(len(items), all_bytes, finished_bytes))
    statistics.add(skipped=finished_count)
    log.info("%d object(s), %d of them finished before", len(items), finished_count)
    return Leftovers(leftovers, fingerprint, statistics)


def log_plan(options: TransformOptions, plan: ExecutionPlan, items: Sequence[InputObject]) -> None:
    """Log how ``items`` are sent, and a warning if some are too large for that."""
    payload = "streamed" if plan.payload_bytes is None else f"{plan.payload_bytes >> 20} MB"
    log.info("%d request(s) at once, %s, payload %s", plan.concurrent, plan.strategy, payload)
    if options.job.content_type is None:
        log.info("no Content-Type is sent, which means JSON: --content-type names another")
    if options.job.strategy not in {None, plan.strategy}:
        log.warning("the model takes one record a request, whatever the job's BatchStrategy")
    if plan.header is not None:
        names = f" if it names {', '.join(plan.header.names)}" if plan.header.names else ""
        log.info("an object's first line is its header%s, and stands in each request", names)
    elif asks_model(options.job):
        log.info(
            "an object's first line is a record, since the server names no inputs: give --csv-header present "
            "if it is a header"
        )
    too_large = [item for item in items if is_too_large(options.job, plan, item)]
    if too_large:
        log.warning(
            "%d object(s) are larger than MaxPayloadInMB allows and will fail; the first is %s",
            len(too_large),
            too_large[0].name,
        )


def served_content(options: TransformOptions) -> str:
    """Identifies what is served.

    For a model its digest; for an endpoint ``served_as`` or its address, and its parameters.
    Raises SettingsError if there is no such model, or if nothing listens at the endpoint.
    """
    if options.model is not None:
        return model_digest(options.model)
    plan = fetch_plan(options.job, EndpointAddress.parse(str(options.endpoint), options.ca, options.key))
    header = "" if plan.header is None else f" {plan.header}"
    return f"{options.served_as or options.endpoint} {plan.strategy} {plan.payload_bytes}{header}"


def model_digest(model: str) -> str:
    """A digest of a model archive or folder: of its content or, in a store, of its ETags.

    Raises SettingsError if there is no such model.
    """
    pairs: Iterator[tuple[str, str]]
    if model.startswith(S3_SCHEME):
        pairs = ((item.name, item.version) for item in s3_objects(batch_client(), model))
    elif is_remote(model):
        pairs = ((item.key, item.etag) for item in objects_at(model, batch_client))
    else:
        pairs = _contents(Path(model))
    digest = hashlib.sha256()
    for name, content in sorted(pairs):
        digest.update(json.dumps([name, content]).encode())
    return digest.hexdigest()


def _contents(path: Path) -> Iterator[tuple[str, str]]:
    if not path.exists():
        raise SettingsError(
            f"There is no model {path}: give an archive, a model file, a folder or an s3:// address."
        )
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    for file in files:
        with file.open("rb") as content:
            yield file.relative_to(path).as_posix(), hashlib.file_digest(content, "sha256").hexdigest()
