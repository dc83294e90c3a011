"""What `tfs-proxy deploy` asks AWS for: three requests, whose names follow from their content; pure."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from tfs_proxy.archive.s3_client import parse_address
from tfs_proxy.endpoint.description.service_model import problems
from tfs_proxy.errors import SettingsError

DIGITS = 8
"""Of the digest in names, which have at most 63 characters on AWS."""

VARIANT = "AllTraffic"
ARCHIVE = "model.tar.gz"

Requests = Mapping[str, Mapping[str, Any]]
"""The parameters of CreateModel, CreateEndpointConfig and CreateEndpoint, by operation."""


class DeployOptions(Struct, frozen=True):
    """What is deployed, and how: ``name`` is the endpoint's, ``bucket`` an ``s3://BUCKET/PREFIX``."""

    name: str
    role: str
    instance_type: str
    image: str
    bucket: str
    count: int = 1
    environment: Mapping[str, str] | None = None


class CallPlan(Struct, frozen=True):
    """Where the archive goes (``bucket``, ``key``), and the requests that follow."""

    bucket: str
    key: str
    requests: Requests

    @property
    def address(self) -> str:
        """The archive's ``s3://`` address."""
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
        "CreateModel": {
            "ModelName": name,
            "PrimaryContainer": container,
            "ExecutionRoleArn": options.role,
        },
        "CreateEndpointConfig": {"EndpointConfigName": name, "ProductionVariants": [variant]},
        "CreateEndpoint": {"EndpointName": options.name, "EndpointConfigName": name},
    }


def check(requests: Requests) -> None:
    """Raise SettingsError for the first request that AWS would refuse."""
    for operation, parameters in requests.items():
        found = problems(operation, parameters)
        if found:
            raise SettingsError(f"AWS would refuse {operation}: {'; '.join(found)}.")


def _digest(options: DeployOptions, archive_digest: str) -> str:
    asked = [archive_digest, options.role, options.instance_type, options.image, options.count]
    text = json.dumps([*asked, sorted((options.environment or {}).items())])
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
