"""Options of a run, its serving stack, and the plan that the stack's answers make for its records."""

import contextlib
import io
import json
import logging
from collections.abc import Iterator, Mapping
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from tfs_proxy.serving.inner_stack import serving
from tfs_proxy.settings.parsers import for_inner_stack
from tfs_proxy.transform.bad_records import BadLimit
from tfs_proxy.transform.batches import asks_model, header_of
from tfs_proxy.transform.files import InputObject, LocalTarget, open_file
from tfs_proxy.transform.job import MANIFEST, MULTI, SINGLE, ExecutionPlan, Job
from tfs_proxy.transform.s3 import OutputTarget, S3Stream, S3Target
from tfs_proxy.transform.sender import EndpointAddress, EndpointNotReached
from tfs_proxy.transform.transformer import FAIL
from tfs_proxy.values.errors import SettingsError, UpstreamError
from tfs_proxy.values.layout import ANYWHERE, LocalFiles
from tfs_proxy.wire.header_names import bearer
from tfs_proxy.wire.http_client import get
from tfs_proxy.wire.routes import EXECUTION_PARAMETERS, INPUT_NAMES, INVOCATIONS, OPENAPI, OUTPUT_NAMES
from tfs_proxy.wire.s3_client import S3_SCHEME, s3_client

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


log = logging.getLogger(__name__)

REQUEST_SECONDS = 10.0

S3_CONNECTIONS = 256

LOCAL = "local"
RAY = "ray"

ENGINES = (LOCAL, RAY)


def stack_environment(base: Mapping[str, str], job: Job) -> dict[str, str]:
    """``base``, and those of the job, for a stack that serves it."""
    inner = {name: value for name, value in for_inner_stack(base).items() if name != "TFS_PROXY_LOG_FORMAT"}
    return {**inner, **job_environment(job)}


def job_environment(job: Job) -> dict[str, str]:
    """The variables that SageMaker sets in a batch job, and the job's own Environment.

    Only what the job sets explicitly is included (docs/reference/sagemaker.md).
    """
    requested = {
        "SAGEMAKER_MAX_PAYLOAD_IN_MB": job.max_payload_mb,
        "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": job.max_concurrent,
        "SAGEMAKER_BATCH_STRATEGY": {SINGLE: "SINGLE_RECORD", MULTI: "MULTI_RECORD"}.get(job.strategy or ""),
    }
    variables = {name: str(value) for name, value in requested.items() if value is not None}
    return {"SAGEMAKER_BATCH": "true", **variables, **job.environment}


def fetch_plan(job: Job, endpoint: EndpointAddress) -> ExecutionPlan:
    """Plans the requests of ``job``; asks ``GET /execution-parameters``, which a server need not know.

    A server of ours says SINGLE_RECORD only if its model takes no other, so that a job can't ask for more.
    Raises SettingsError if nothing listens there.
    """
    parameters = _object_at(endpoint, EXECUTION_PARAMETERS.path)
    plan = ExecutionPlan.resolve(job, parameters)
    is_limited = plan.strategy == MULTI and parameters.get("BatchStrategy") == "SINGLE_RECORD"
    asks = is_limited or asks_model(job) or job.joins
    document = _object_at(endpoint, OPENAPI.path) if asks else {}
    inputs = names_in(document, INPUT_NAMES)
    if is_limited and inputs:
        plan = replace(plan, strategy=SINGLE)
    titles = names_in(document, OUTPUT_NAMES)
    return replace(plan, header=header_of(job, inputs), titles=titles)


def _object_at(endpoint: EndpointAddress, path: str) -> dict[str, Any]:
    """The JSON object that the endpoint answers with; {} if there is none."""
    try:
        response = get(
            endpoint.host,
            endpoint.port,
            endpoint.sibling(path),
            REQUEST_SECONDS,
            bearer(endpoint.key),
            connect=endpoint.connect,
            server=endpoint.authority,
        )
        values = json.loads(response.body) if response.status == HTTPStatus.OK else None
    except EndpointNotReached as error:
        raise SettingsError(f"The endpoint can't be used: {error}.") from error
    except (UpstreamError, ValueError):
        values = None
    return values if isinstance(values, dict) else {}


def names_in(document: Mapping[str, Any], member: str) -> tuple[str, ...]:
    """The names of the default model's inputs or outputs, as /openapi.json has them; () if it does not."""
    with contextlib.suppress(KeyError, TypeError):
        return tuple(map(str, document["paths"][INVOCATIONS.path]["post"][member]))
    return ()


class TransformOptions(Struct, frozen=True, kw_only=True):
    """Options of the command line. Raises SettingsError if they contradict each other."""

    job: Job
    """Job to run."""

    model: str | None = None
    """Archive, folder or address to serve for the run; None with an ``endpoint``."""

    endpoint: str | None = None
    """URL of a server that runs already; None with a ``model``."""

    ca: str | None = None
    """File of CAs for the endpoint's certificate; None for those of the system."""

    key: str | None = None
    """Key of the caller, one of the endpoint's TFS_PROXY_API_KEYS; None for none."""

    served_as: str | None = None
    """Name of what the endpoint serves, wherever it is; None for its address."""

    model_server: str = "auto"
    """Program of the model server for ``model``."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment that a serving stack inherits."""

    on_error: str = FAIL
    """Treatment of a record that the server refuses: fail, placeholder or sidecar."""

    max_bad: BadLimit | None = None
    """Bad records that an object may have; None for any number."""

    resume: bool = True
    """False to repeat what an earlier run has finished."""

    summary: Path | None = None
    """File for counts and latencies; None for none."""

    instance_index: int = 0
    """Number of this machine, from 0."""

    instance_count: int = 1
    """Number of machines that share the objects."""

    engine: str = LOCAL
    """Spread of the work: local, or ray for a cluster."""

    files: LocalFiles = ANYWHERE
    """Files of this machine that objects may be."""

    sagemaker_output: bool = False
    """True for outputs as SageMaker's jobs write them, without a header."""

    def __post_init__(self) -> None:
        if (self.model is None) == (self.endpoint is None):
            raise SettingsError(
                "Give either --model, to serve it for this run, or --endpoint, the address of a running one."
            )
        for flag, value in (("--served-as", self.served_as), ("--ca", self.ca), ("--key", self.key)):
            if value is not None and self.endpoint is None:
                raise SettingsError(f"{flag} has an effect only with --endpoint.")
        if not 0 <= self.instance_index < self.instance_count:
            raise SettingsError(
                f"--instance-index {self.instance_index} must be from 0 to {self.instance_count - 1}, "
                "one less than --instance-count."
            )
        if self.max_bad is not None and self.on_error == FAIL:
            raise SettingsError("--max-bad has an effect only with --on-error placeholder or sidecar.")

    def open_object(self, item: InputObject) -> io.RawIOBase:
        """The stored bytes of ``item``, in S3 or in a file. Raises StorageError."""
        if item.address.startswith(S3_SCHEME):
            return S3Stream(batch_client(), item)
        return open_file(item.address)

    @property
    def uses_remote_storage(self) -> bool:
        """True if objects are, or may be, in S3, where reads and writes are slow."""
        addresses = (self.job.input, self.job.output)
        return self.job.data_type == MANIFEST or any(each.startswith(S3_SCHEME) for each in addresses)


@cache
def batch_client() -> "S3Client":
    """The process's client of S3 for objects of a job."""
    return s3_client(S3_CONNECTIONS)


@contextlib.contextmanager
def open_endpoint(options: TransformOptions) -> Iterator[EndpointAddress]:
    """The endpoint to send to: the given one, or a stack that serves the model while the block runs."""
    if options.endpoint is not None:
        if options.job.environment:
            log.warning("the job's Environment has no effect on --endpoint")
        yield EndpointAddress.parse(options.endpoint, options.ca, options.key)
        return
    assert options.model is not None  # noqa: S101 - __post_init__ checks that
    environment = stack_environment(options.environment, options.job)
    log.info("serving %s for this run", options.model)
    with serving(options.model, environment, ("--model-server", options.model_server)) as address:
        yield EndpointAddress.parse(address)


def output_target(options: TransformOptions, node: str = "") -> OutputTarget:
    """Target of the outputs; ``node`` is different for every node that shares the run and its folder."""
    output = options.job.output
    if output.startswith(S3_SCHEME):
        return S3Target(batch_client(), output)
    return LocalTarget(Path(output), f"{options.instance_index}-of-{options.instance_count}{node}")
