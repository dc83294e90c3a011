"""All endpoints of a run, which AWS's operations create, update and delete."""

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from tfs_proxy.run.process import ChildProcess
from tfs_proxy.tools.endpoint.aws_api import CONTROL_PLANE, AwsError, refused
from tfs_proxy.tools.endpoint.catalogue import Catalogue, located
from tfs_proxy.tools.endpoint.hosted_endpoint import IN_SERVICE, UPDATING, HostedEndpoint
from tfs_proxy.tools.endpoint.operations import OPERATIONS, OperationRequest, read_operations
from tfs_proxy.tools.endpoint.starter import ContainerStarter
from tfs_proxy.values.errors import SettingsError, StopServing
from tfs_proxy.values.names import printable

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
_NAMES = {"CreateModel": "ModelName", "CreateEndpointConfig": "EndpointConfigName"}


def update(files: Sequence[Path], url: str) -> None:
    """Creates what is new in the files, and updates their endpoints to their configs, as UpdateEndpoint does.

    Returns once all are in service. Raises SettingsError if a file or a call is refused, or an update fails.
    """
    import botocore.session

    # botocore insists on credentials, which the endpoint on this machine does not check.
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
    """Makes the call for one request; returns the name of the endpoint that it changes."""
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
    """Creates a model or a config, unless an identical one exists."""
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


WATCH_SECONDS = 1.0


class Hosting:
    """The endpoints by name; ``catalogue`` has their parts."""

    def __init__(self, catalogue: Catalogue, starter: ContainerStarter) -> None:
        self.catalogue = catalogue
        self.endpoints: dict[str, HostedEndpoint] = {}
        self._starter = starter
        self._working: set[asyncio.Task[None]] = set()

    async def start_all(self) -> None:
        """Raises StopServing if an endpoint can't be started."""
        made = [self._made(name) for name in self.catalogue.endpoints]
        await asyncio.gather(*(endpoint.start() for endpoint in made))

    def known(self, name: str) -> HostedEndpoint:
        """Raises AwsError for an unknown name."""
        if name not in self.endpoints:
            raise refused(f"Endpoint {name} of account local not found.")
        return self.endpoints[name]

    def create(self, request: OperationRequest) -> None:
        """Creates things, and starts endpoints and components in the background. Raises AwsError."""
        try:
            self.catalogue.create(request)
        except SettingsError as error:
            raise refused(str(error)) from error
        if request.operation == "CreateEndpoint":
            self._in_background(self._made(request.parameters["EndpointName"]).start())
        elif request.operation == "CreateInferenceComponent":
            component = self.catalogue.components[request.parameters["InferenceComponentName"]]
            self._in_background(self.known(component.endpoint).add_component(component))

    def update(self, parameters: Mapping[str, Any]) -> None:
        """Starts to change an endpoint to another config, as UpdateEndpoint. Raises AwsError."""
        endpoint = self.known(parameters["EndpointName"])
        config = self.catalogue.configs.get(parameters["EndpointConfigName"])
        if config is None:
            raise refused(f"Could not find endpoint configuration {parameters['EndpointConfigName']}.")
        refuse_while_changing(endpoint)
        retains = parameters.get("RetainAllVariantProperties", False)
        self._in_background(endpoint.update(config, retains_properties=retains))

    def change_weights(self, parameters: Mapping[str, Any]) -> None:
        """Starts to change weights and counts, as UpdateEndpointWeightsAndCapacities. Raises AwsError."""
        endpoint = self.known(parameters["EndpointName"])
        refuse_while_changing(endpoint)
        changes = parameters["DesiredWeightsAndCapacities"]
        for wanted in changes:
            endpoint.variant(wanted["VariantName"])
        for wanted in changes:
            variant = wanted["VariantName"]
            if "DesiredWeight" in wanted:
                endpoint.change_weight(variant, float(wanted["DesiredWeight"]))
            if "DesiredInstanceCount" in wanted:
                self._in_background(endpoint.scale(variant, wanted["DesiredInstanceCount"]))

    def delete(self, name: str) -> None:
        """Starts to end an endpoint. Raises AwsError for an unknown name."""
        endpoint = self.known(name)
        del self.endpoints[name]
        self.catalogue.forget("CreateEndpoint", name)
        self._in_background(endpoint.stop())

    def delete_component(self, name: str) -> None:
        """Starts to end an inference component. Raises AwsError if its endpoint is gone."""
        component = self.catalogue.components[name]
        self.catalogue.forget("CreateInferenceComponent", name)
        self._in_background(self.known(component.endpoint).remove_component(name))

    def children(self) -> Iterator[ChildProcess]:
        for endpoint in self.endpoints.values():
            for group in endpoint.groups():
                for instance in group.instances:
                    yield from (each.child for each in instance.containers if each.child is not None)

    async def watch(self) -> None:
        """Replaces failed instances; never returns."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            await asyncio.gather(*(endpoint.replace_failed() for endpoint in self.endpoints.values()))

    async def stop(self) -> None:
        """Drains and ends all endpoints."""
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)
        await asyncio.gather(*(endpoint.stop() for endpoint in self.endpoints.values()))

    def _made(self, name: str) -> HostedEndpoint:
        config = self.catalogue.configs[self.catalogue.endpoints[name]]
        endpoint = self.endpoints[name] = HostedEndpoint(name, config, self.catalogue, self._starter)
        return endpoint

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(_logged(work))
        self._working.add(task)
        task.add_done_callback(self._working.discard)


def refuse_while_changing(endpoint: HostedEndpoint) -> None:
    """Raises AwsError if the endpoint is being changed already."""
    if endpoint.status == UPDATING:
        raise refused(f"Endpoint {endpoint.name} is being updated: wait until it is InService.")


async def _logged(work: Coroutine[None, None, None]) -> None:
    try:
        await work
    except (StopServing, AwsError) as error:
        log.error("%s", error)  # noqa: TRY400 - the sentence says it all
