"""`tfs-proxy endpoint --update`: sends requests of files to endpoints that run, and waits for the change."""

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from tfs_proxy.endpoint.description.containers_of import located
from tfs_proxy.endpoint.description.operations_file import OPERATIONS, OperationRequest, read_operations
from tfs_proxy.endpoint.description.service_model import CONTROL_PLANE
from tfs_proxy.endpoint.hosted_endpoint import IN_SERVICE, UPDATING
from tfs_proxy.errors import SettingsError
from tfs_proxy.names import printable

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
_NAMES = {"CreateModel": "ModelName", "CreateEndpointConfig": "EndpointConfigName"}


def update(files: Sequence[Path], url: str) -> None:
    """Create what is new in the files, and change their endpoints to their configs, as UpdateEndpoint does.

    Returns once all are in service. Raises SettingsError if a file or a call is refused, or an update fails.
    """
    import botocore.session

    # The endpoint on this machine asks for no signature; botocore makes none without some words.
    client: Any = botocore.session.get_session().create_client(
        CONTROL_PLANE,
        endpoint_url=url,
        region_name="local",
        aws_access_key_id="local",
        aws_secret_access_key="local",  # noqa: S106 - no secret: nothing checks it
    )
    requests = [request for file in files for request in read_operations(file)]
    try:
        endpoints = [_sent(client, each) for each in sorted(requests, key=_order)]
        for name in filter(None, endpoints):
            _wait(client, name)
    except (BotoCoreError, ClientError) as error:
        raise SettingsError(f"{printable(url)}: {error}.") from error


def _order(request: OperationRequest) -> int:
    return OPERATIONS.index(request.operation)


def _sent(client: Any, request: OperationRequest) -> str | None:
    """Make the call for one request; the name of the endpoint that changes by it."""
    parameters = _with_absolute_paths(request.parameters, request.folder)
    match request.operation:
        case "CreateEndpoint":
            wanted = {name: parameters[name] for name in ("EndpointName", "EndpointConfigName")}
            client.update_endpoint(**wanted)
            return str(wanted["EndpointName"])
        case "CreateInferenceComponent":
            client.create_inference_component(**parameters)
        case operation:
            _create(client, operation, request.place, parameters)
    return None


def _create(client: Any, operation: str, place: str, parameters: Mapping[str, Any]) -> None:
    """Create a model or a config, unless the very same exists."""
    kind = operation.removeprefix("Create")
    name = parameters[_NAMES[operation]]
    describe = {"Model": client.describe_model, "EndpointConfig": client.describe_endpoint_config}[kind]
    create = {"Model": client.create_model, "EndpointConfig": client.create_endpoint_config}[kind]
    try:
        existing = describe(**{_NAMES[operation]: name})
    except ClientError:
        create(**parameters)
        return
    if any(existing.get(member) != value for member, value in parameters.items()):
        raise SettingsError(
            f"{place}: {name} exists, and differs. It can't be changed, as on AWS: take another name."
        )


def _with_absolute_paths(value: Any, folder: Path) -> Any:
    """The same parameters with paths that another process understands."""
    if isinstance(value, list):
        return [_with_absolute_paths(each, folder) for each in value]
    if not isinstance(value, Mapping):
        return value
    return {
        name: located(part, folder)
        if name in {"ModelDataUrl", "S3Uri"}
        else _with_absolute_paths(part, folder)
        for name, part in value.items()
    }


def _wait(client: Any, name: str) -> None:
    described = client.describe_endpoint(EndpointName=name)
    log.info("endpoint %s: %s", name, described["EndpointStatus"])
    while described["EndpointStatus"] == UPDATING:
        time.sleep(LOOK_SECONDS)
        described = client.describe_endpoint(EndpointName=name)
    reason = described.get("FailureReason")
    if reason or described["EndpointStatus"] != IN_SERVICE:
        raise SettingsError(f"The update of {name} failed, and the old config serves on: {reason}")
    log.info("endpoint %s is in service with the config %s", name, described["EndpointConfigName"])
