"""What one run of `tfs-proxy transform` was asked for, and where it sends, reads and writes."""

import contextlib
import io
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tfs_proxy.errors import SettingsError
from tfs_proxy.transform.fingerprints import model_digest
from tfs_proxy.transform.job import MANIFEST, Effort, Job
from tfs_proxy.transform.send.connection import Endpoint
from tfs_proxy.transform.send.isolation import FAIL
from tfs_proxy.transform.send.stack import execution_parameters, serving, stack_environment
from tfs_proxy.transform.stores.interface import InputObject, Target
from tfs_proxy.transform.stores.local import LocalSource, LocalTarget
from tfs_proxy.transform.stores.s3 import S3_SCHEME, S3_TIMEOUT_SECONDS, S3Source, s3_client
from tfs_proxy.transform.stores.s3_target import S3Target

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

S3_CONNECTIONS = 256
LOCAL, RAY = "local", "ray"
ENGINES = (LOCAL, RAY)

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What the command line asks for. Either ``model`` or ``endpoint`` is given.

    ``environment`` is what a serving stack inherits. ``ray_address`` None leaves the choice to Ray.
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
    s3_timeout_seconds: float = S3_TIMEOUT_SECONDS
    engine: str = LOCAL
    ray_address: str | None = None

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
        if self.ray_address is not None and self.engine != RAY:
            raise SettingsError("--ray-address is of use with --engine ray only.")

    def client(self) -> "S3Client":
        """The S3 client of this process."""
        return shared_client(self.s3_timeout_seconds)

    @property
    def is_far(self) -> bool:
        """Whether its objects lie, or may lie, where reading and writing take time."""
        job = self.job
        return (
            job.data_type == MANIFEST or job.input.startswith(S3_SCHEME) or job.output.startswith(S3_SCHEME)
        )


@cache
def shared_client(timeout_seconds: float) -> "S3Client":
    """The S3 client of this process."""
    return s3_client(S3_CONNECTIONS, timeout_seconds)


@contextlib.contextmanager
def endpoint_of(request: Request) -> Iterator[Endpoint]:
    """Where to send: the endpoint given, or a stack that serves the model as long as the block runs."""
    if request.endpoint is not None:
        if request.job.environment:
            log.warning("the job's Environment has no effect on an endpoint that runs already")
        yield Endpoint.parse(request.endpoint)
        return
    assert request.model is not None  # noqa: S101 - one of both is given
    environment = stack_environment(request.environment, request.job)
    log.info("serving %s for this run", request.model)
    with serving(request.model, environment, ("--model-server", request.model_server)) as address:
        yield Endpoint.parse(address)


def served_content(request: Request) -> str:
    """A digest of the model's content; for an endpoint, its address and how it wants records packed.

    Raises SettingsError if there is no such model, or nobody listens at the endpoint.
    """
    if request.model is not None:
        return model_digest(request.model, request.client)
    effort = Effort.of(request.job, execution_parameters(Endpoint.parse(str(request.endpoint))))
    return f"{request.endpoint} {effort.strategy} {effort.payload_bytes}"


def target_of(request: Request, machine: str = "") -> Target:
    """Where outputs go; ``machine`` keeps machines apart that share one run and one folder."""
    output = request.job.output
    if output.startswith(S3_SCHEME):
        return S3Target(request.client(), output)
    return LocalTarget(Path(output), f"{request.instance_index}-of-{request.instance_count}{machine}")


class Inputs:
    """Reads objects where they lie."""

    def __init__(self, request: Request) -> None:
        self._client = request.client

    def open(self, item: InputObject) -> io.RawIOBase:
        """The stored bytes of ``item``. Raises StorageError."""
        if item.address.startswith(S3_SCHEME):
            return S3Source(self._client()).open(item)
        return LocalSource().open(item)
