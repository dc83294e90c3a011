"""One `tfs-proxy transform`, from job to summary: the order of the steps, each of which is elsewhere."""

import contextlib
import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tfs_proxy.errors import SettingsError
from tfs_proxy.transform import tune as tuning
from tfs_proxy.transform.assemble import processing
from tfs_proxy.transform.connection import Endpoint
from tfs_proxy.transform.engine import Engine, Stores
from tfs_proxy.transform.isolate import FAIL, Transformer
from tfs_proxy.transform.job import Effort, Job
from tfs_proxy.transform.local import LocalSource, LocalTarget
from tfs_proxy.transform.marks import mark_of, model_digest
from tfs_proxy.transform.objects import objects_of, shard
from tfs_proxy.transform.progress import Progress
from tfs_proxy.transform.s3 import S3_SCHEME, S3Source, S3Target, s3_client
from tfs_proxy.transform.send import Manner, Sender
from tfs_proxy.transform.stack import execution_parameters, serving, stack_environment
from tfs_proxy.transform.stores import InputObject, Source, Target
from tfs_proxy.transform.tally import Expected, Tally

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

S3_CONNECTIONS = 256
INCOMPLETE = 1
_SHOWN_FAILURES = 10

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What the command line asks for. Either ``model`` or ``endpoint`` is given.

    ``names`` limits the run to these objects, None means all of the shard.
    """

    job: Job
    model: str | None = None
    endpoint: str | None = None
    model_server: str = "auto"
    environment: Mapping[str, str] = field(default_factory=dict)
    on_error: str = FAIL
    resume: bool = True
    summary: Path | None = None
    instance_index: int = 0
    instance_count: int = 1
    names: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if (self.model is None) == (self.endpoint is None):
            raise SettingsError(
                "Give either --model, to serve it for this run, or --endpoint, one that runs."
            )
        if not 0 <= self.instance_index < self.instance_count:
            raise SettingsError(
                f"--instance-index {self.instance_index} must be from 0 to {self.instance_count - 1}, "
                "one less than --instance-count."
            )


@cache
def shared_client() -> "S3Client":
    """The S3 client of this process."""
    return s3_client(S3_CONNECTIONS)


def run(request: Request) -> int:
    """Transform everything; the exit status: 0 where every object succeeded, else 1.

    Raises SettingsError before anything is begun, and StopServing where the run can't go on.
    """
    items = chosen(request)
    target = target_of(request)
    target.check(items)
    with endpoint_of(request) as endpoint:
        tally = transform(request, items, target, endpoint)
    _report(tally, request.summary)
    return INCOMPLETE if tally.counts.failed else 0


def tune(request: Request) -> int:
    """Measure a sample of the input and print the best values; nothing is written. The exit status.

    Where the server is ours, batching is tried as well. Raises as `run` does.
    """
    items = chosen(request)
    source = _source_of(items)
    found: list[tuning.Measured] = []
    for environment in tuning.BATCHING if request.model else ({},):
        job = tuning.with_environment(request.job, environment)
        with endpoint_of(replace(request, job=job)) as endpoint:
            effort = Effort.of(job, execution_parameters(endpoint))
            sample = tuning.sample_of(job, effort, items, source)
            found += tuning.sweep(job, sample, endpoint, environment)
    sys.stdout.write(tuning.advice(request.job, tuning.best_of(found)) + "\n")
    return 0


def chosen(request: Request) -> list[InputObject]:
    """The objects that this run is about."""
    job = request.job
    _check_apart(job)
    items = objects_of(job.input, job.data_type, shared_client)
    if request.names is not None:
        return [item for item in items if item.name in request.names]
    return shard(items, request.instance_index, request.instance_count)


@contextlib.contextmanager
def endpoint_of(request: Request) -> Iterator[Endpoint]:
    """Where to send: the endpoint given, or a stack that serves the model as long as the block runs."""
    if request.endpoint is not None:
        yield Endpoint.parse(request.endpoint)
        return
    assert request.model is not None  # noqa: S101 - one of both is given
    environment = stack_environment(request.environment, request.job)
    log.info("serving %s for this run", request.model)
    with serving(request.model, environment, ("--model-server", request.model_server)) as address:
        yield Endpoint.parse(address)


def transform(request: Request, items: Sequence[InputObject], target: Target, endpoint: Endpoint) -> Tally:
    """Send ``items`` to ``endpoint``, those left out that are finished; the tally at the end."""
    job = request.job
    effort = Effort.of(job, execution_parameters(endpoint))
    model = model_digest(request.model, shared_client) if request.model else str(request.endpoint)
    mark = mark_of(job, effort, request.on_error, model)
    todo = _unfinished(items, target, mark) if request.resume else list(items)
    tally = Tally(Expected(len(items), sum(item.size for item in todo)))
    tally.add(skipped=len(items) - len(todo))
    manner = Manner(job.content_type, job.accept, job.timeout_seconds, job.max_retries)
    sender = Sender(endpoint, manner, effort.concurrent, tally)
    transformer = Transformer(job, processing(job), sender, request.on_error)
    stores = Stores(_source_of(items), target, far=_reads_s3(items) or job.output.startswith(S3_SCHEME))
    engine = Engine(job, effort, stores, transformer, tally, mark)
    _announce(effort, items, todo, engine)
    with Progress(tally, sys.stderr):
        engine.run(todo)
    return tally


def target_of(request: Request) -> Target:
    """Where outputs go."""
    output = request.job.output
    if output.startswith(S3_SCHEME):
        return S3Target(shared_client(), output)
    return LocalTarget(Path(output), f"{request.instance_index}-of-{request.instance_count}")


def _source_of(items: Sequence[InputObject]) -> Source:
    return S3Source(shared_client()) if _reads_s3(items) else LocalSource()


def _reads_s3(items: Sequence[InputObject]) -> bool:
    return any(item.address.startswith(S3_SCHEME) for item in items[:1])


def _check_apart(job: Job) -> None:
    """Refuse an output folder inside the input folder: the next run would take outputs for inputs."""
    if job.input.startswith(S3_SCHEME) or job.output.startswith(S3_SCHEME):
        return
    if Path(job.input).is_dir() and Path(job.output).resolve().is_relative_to(Path(job.input).resolve()):
        raise SettingsError(f"The output {job.output} lies in the input {job.input}: give another folder.")


def _unfinished(items: Sequence[InputObject], target: Target, mark: str) -> list[InputObject]:
    finished = target.finished(mark)
    return [item for item in items if finished.get(item.name) != item.version]


def _announce(
    effort: Effort, items: Sequence[InputObject], todo: Sequence[InputObject], engine: Engine
) -> None:
    payload = "streamed" if effort.payload_bytes is None else f"{effort.payload_bytes >> 20} MB"
    log.info(
        "%d object(s), %d of them finished before; %d request(s) at once, %s, payload %s",
        len(items),
        len(items) - len(todo),
        effort.concurrent,
        effort.strategy,
        payload,
    )
    too_large = [item for item in todo if engine.is_too_large(item)]
    if too_large:
        log.warning(
            "%d object(s) are larger than MaxPayloadInMB allows and will fail, %s the first of them",
            len(too_large),
            too_large[0].name,
        )


def _report(tally: Tally, path: Path | None) -> None:
    summary, counts = tally.summary(), tally.counts
    for failure in tally.failures[:_SHOWN_FAILURES]:
        log.error("%s", failure)
    if len(tally.failures) > _SHOWN_FAILURES:
        log.error("further failures are in the .err files and in the summary")
    log.info(
        "%d object(s) done, %d finished before, %d failed; %d records, %d of them bad; %.1f s, %s records/s; "
        "latency p50 %.1f, p90 %.1f, p99 %.1f ms",
        counts.objects,
        counts.skipped,
        counts.failed,
        counts.records,
        counts.bad_records,
        tally.seconds,
        summary["records_per_second"],
        *(1000 * tally.percentile_seconds(share) for share in (0.5, 0.9, 0.99)),
    )
    if path is not None:
        try:
            path.write_text(json.dumps(summary, indent=1) + "\n")
        except OSError as error:
            raise SettingsError(f"The summary {path} can't be written: {error.strerror}.") from error
