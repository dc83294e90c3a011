"""The options of one `tfs-proxy transform`, and where they make it send, read and write."""

import contextlib
import io
import logging
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from tfs_proxy.archive.s3_client import S3_SCHEME, S3_TIMEOUT_SECONDS, s3_client
from tfs_proxy.errors import SettingsError
from tfs_proxy.inner_stack.stack import serving
from tfs_proxy.transform.job import MANIFEST, Job
from tfs_proxy.transform.send.bad_records import BadLimit
from tfs_proxy.transform.send.connection import EndpointAddress
from tfs_proxy.transform.send.isolation import FAIL
from tfs_proxy.transform.send.stack import stack_environment
from tfs_proxy.transform.stores.interface import InputObject, OutputTarget
from tfs_proxy.transform.stores.local import LocalTarget, open_file
from tfs_proxy.transform.stores.s3 import S3Stream
from tfs_proxy.transform.stores.s3_target import S3Target

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

S3_CONNECTIONS = 256
LOCAL, RAY = "local", "ray"
ENGINES = (LOCAL, RAY)

log = logging.getLogger(__name__)


class TransformOptions(Struct, frozen=True, kw_only=True):
    """What the command line asks for; either ``model`` or ``endpoint`` is set.

    A serving stack inherits ``environment``. If ``ray_address`` is None, Ray chooses the cluster. Raises
    SettingsError if the options contradict each other.
    """

    job: Job
    model: str | None = None
    endpoint: str | None = None
    model_server: str = "auto"
    environment: Mapping[str, str] = field(default_factory=dict)
    on_error: str = FAIL
    max_bad: BadLimit | None = None
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
                "Give either --model, to serve it for this run, or --endpoint, the address of a running one."
            )
        if not 0 <= self.instance_index < self.instance_count:
            raise SettingsError(
                f"--instance-index {self.instance_index} must be from 0 to {self.instance_count - 1}, "
                "one less than --instance-count."
            )
        if self.max_bad is not None and self.on_error == FAIL:
            raise SettingsError("--max-bad has an effect only with --on-error placeholder or sidecar.")
        if self.ray_address is not None and self.engine != RAY:
            raise SettingsError(
                "--ray-address has an effect only with --engine ray: add that, or leave it out."
            )

    def client(self) -> "S3Client":
        """The S3 client of this process."""
        return shared_client(self.s3_timeout_seconds)

    def open_object(self, item: InputObject) -> io.RawIOBase:
        """The stored bytes of ``item``, in S3 or in a file. Raises StorageError."""
        if item.address.startswith(S3_SCHEME):
            return S3Stream(self.client(), item)
        return open_file(item.address)

    @property
    def uses_remote_storage(self) -> bool:
        """Whether objects are, or may be, in S3, where reads and writes are slow."""
        job = self.job
        return (
            job.data_type == MANIFEST or job.input.startswith(S3_SCHEME) or job.output.startswith(S3_SCHEME)
        )


@cache
def shared_client(timeout_seconds: float) -> "S3Client":
    """The S3 client of this process."""
    return s3_client(S3_CONNECTIONS, timeout_seconds)


@contextlib.contextmanager
def open_endpoint(options: TransformOptions) -> Iterator[EndpointAddress]:
    """The endpoint to send to: the given one, or a stack that serves the model while the block runs."""
    if options.endpoint is not None:
        if options.job.environment:
            log.warning("the job's Environment has no effect on --endpoint")
        yield EndpointAddress.parse(options.endpoint)
        return
    assert options.model is not None  # noqa: S101 - __post_init__ checks that
    environment = stack_environment(options.environment, options.job)
    log.info("serving %s for this run", options.model)
    with serving(options.model, environment, ("--model-server", options.model_server)) as address:
        yield EndpointAddress.parse(address)


def output_target(options: TransformOptions, node: str = "") -> OutputTarget:
    """Where outputs are written; ``node`` is different for every node that shares the run and its folder."""
    output = options.job.output
    if output.startswith(S3_SCHEME):
        return S3Target(options.client(), output)
    return LocalTarget(Path(output), f"{options.instance_index}-of-{options.instance_count}{node}")
