"""Upload of an archive to S3, and the calls that make it an endpoint on SageMaker; made, or only shown."""

import contextlib
import hashlib
import json
import logging
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tfs_proxy.tools.endpoint.aws_api import problems
from tfs_proxy.values.errors import SettingsError, StopServing
from tfs_proxy.wire.s3_client import error_code, one_line, parse_address, s3_client, s3_errors

DIGITS = 8
"""Digits of the digest in names, which have at most 63 characters on AWS."""

VARIANT = "AllTraffic"
ARCHIVE = "model.tar.gz"

Requests = Mapping[str, Mapping[str, Any]]
"""The parameters of CreateModel, CreateEndpointConfig and CreateEndpoint, by operation."""


class DeployOptions(Struct, frozen=True):
    """Deployment to make: ``name`` is the endpoint's, ``bucket`` an ``s3://BUCKET/PREFIX``."""

    name: str
    role: str
    instance_type: str
    image: str
    bucket: str
    count: int = 1
    environment: Mapping[str, str] | None = None


class CallPlan(Struct, frozen=True):
    """Address of the archive (``bucket``, ``key``), and the requests that follow."""

    bucket: str
    key: str
    requests: Requests

    @property
    def address(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


def call_plan(options: DeployOptions, archive_digest: str) -> CallPlan:
    """The calls for an archive of this digest: the same archive and options give the same names.

    So a call that failed can be made again, and a changed model gets names of its own. Raises SettingsError,
    with AWS's name of the member, for what AWS would refuse.
    """
    bucket, prefix = parse_address(options.bucket)
    name = f"{options.name}-{_digest(options, archive_digest)}"
    key = "/".join(filter(None, (prefix.strip("/"), name, ARCHIVE)))
    plan = CallPlan(bucket, key, requests(options, name, f"s3://{bucket}/{key}"))
    check(plan.requests)
    return plan


def requests(options: DeployOptions, name: str, model_data: str) -> Requests:
    """The requests for a model and a config called ``name``."""
    container: dict[str, Any] = {"Image": options.image, "ModelDataUrl": model_data}
    if options.environment:
        container["Environment"] = dict(options.environment)
    variant = {
        "VariantName": VARIANT,
        "ModelName": name,
        "InstanceType": options.instance_type,
        "InitialInstanceCount": options.count,
    }
    return {
        "CreateModel": {"ModelName": name, "PrimaryContainer": container, "ExecutionRoleArn": options.role},
        "CreateEndpointConfig": {"EndpointConfigName": name, "ProductionVariants": [variant]},
        "CreateEndpoint": {"EndpointName": options.name, "EndpointConfigName": name},
    }


def check(requests: Requests) -> None:
    for operation, parameters in requests.items():
        found = problems(operation, parameters)
        if found:
            raise SettingsError(f"AWS would refuse {operation}: {'; '.join(found)}.")


def _digest(options: DeployOptions, archive_digest: str) -> str:
    asked = [archive_digest, options.role, options.instance_type, options.image, options.count]
    text = json.dumps([*asked, sorted((options.environment or {}).items())])
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
IN_SERVICE, CREATING, UPDATING = "InService", "Creating", "Updating"
NOT_FOUND = frozenset({"404", "NoSuchKey"})
REFUSED = "ValidationException"


class DeploymentFailed(StopServing):
    """SageMaker could not bring the endpoint into service."""


def upload(archive: Path, plan: CallPlan) -> None:
    """Put the archive where the model expects it, unless it is there; raises SettingsError."""
    client: S3Client = s3_client()
    with s3_errors(plan.address, SettingsError):
        if _is_there(client, plan, archive.stat().st_size):
            log.info("%s is there already", plan.address)
            return
        log.info("uploading %s to %s", archive, plan.address)
        client.upload_file(str(archive), plan.bucket, plan.key)


def _is_there(client: "S3Client", plan: CallPlan, size: int) -> bool:
    from botocore.exceptions import ClientError

    try:
        return client.head_object(Bucket=plan.bucket, Key=plan.key)["ContentLength"] == size
    except ClientError as error:
        if error_code(error.response) in NOT_FOUND:
            return False
        raise


class SageMaker:
    """The calls to SageMaker, each with a line in the log; its status is looked at each ``look_seconds``."""

    def __init__(self, look_seconds: float = LOOK_SECONDS) -> None:
        import botocore.session

        self._look_seconds = look_seconds
        with _errors("SageMaker"):
            self._client: Any = botocore.session.get_session().create_client("sagemaker")

    def status(self, endpoint: str) -> str | None:
        """The endpoint's status; None if there is none of this name. Raises SettingsError."""
        from botocore.exceptions import ClientError

        with _errors("DescribeEndpoint"):
            try:
                return str(self._client.describe_endpoint(EndpointName=endpoint)["EndpointStatus"])
            except ClientError as error:
                if error_code(error.response) == REFUSED:
                    return None
                raise

    def deploy(self, plan: CallPlan, *, update: bool) -> None:
        """Make the model and the config unless they exist, then the endpoint; raises SettingsError."""
        model, config, endpoint = (
            plan.requests[name] for name in ("CreateModel", "CreateEndpointConfig", "CreateEndpoint")
        )
        self._create("CreateModel", self._client.create_model, model)
        self._create("CreateEndpointConfig", self._client.create_endpoint_config, config)
        if update:
            log.info("UpdateEndpoint %s", endpoint["EndpointName"])
            with _errors("UpdateEndpoint"):
                self._client.update_endpoint(**endpoint)
        else:
            log.info("CreateEndpoint %s", endpoint["EndpointName"])
            with _errors("CreateEndpoint"):
                self._client.create_endpoint(**endpoint)

    def _create(self, operation: str, call: Any, parameters: Any) -> None:
        from botocore.exceptions import ClientError

        name = next(iter(parameters.values()))
        with _errors(operation):
            try:
                call(**parameters)
            except ClientError as error:
                # The name follows from the content, so what exists under it is what is asked for.
                if "exist" not in str(error):
                    raise
                log.info("%s %s: it exists already", operation, name)
            else:
                log.info("%s %s", operation, name)

    def wait(self, endpoint: str) -> None:
        """Return once the endpoint is in service, with a line for each change of its status and each minute.

        Raises DeploymentFailed with SageMaker's reason if it does not get there.
        """
        began, shown, shown_at = time.monotonic(), "", 0.0
        while True:
            with _errors("DescribeEndpoint"):
                described = self._client.describe_endpoint(EndpointName=endpoint)
            status, now = described["EndpointStatus"], time.monotonic()
            if status != shown or now - shown_at >= 60:  # noqa: PLR2004
                log.info("%s: %s, after %.0f s", endpoint, status, now - began)
                shown, shown_at = status, now
            if status not in {CREATING, UPDATING}:
                break
            time.sleep(self._look_seconds)
        if status != IN_SERVICE or described.get("FailureReason"):
            reason = described.get("FailureReason", "SageMaker says no reason")
            raise DeploymentFailed(f"The endpoint {endpoint} is {status}: {reason}")


@contextlib.contextmanager
def _errors(what: str) -> Iterator[None]:
    """Turn boto3's exceptions into SettingsError with a sentence."""
    from botocore import exceptions as boto

    try:
        yield
    except (boto.NoCredentialsError, boto.PartialCredentialsError, boto.ProfileNotFound) as error:
        raise SettingsError(
            f"{what} can't be called without credentials ({one_line(error)}): set AWS_PROFILE, or "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        ) from error
    except (boto.NoRegionError, ValueError) as error:  # botocore's for an address without a region
        raise SettingsError(f"{what} can't be called without a region: set AWS_DEFAULT_REGION.") from error
    except boto.ClientError as error:
        raise SettingsError(f"AWS refuses {what}: {one_line(error)}.") from error
    except boto.BotoCoreError as error:
        raise SettingsError(f"{what} can't be called: {one_line(error)}.") from error
