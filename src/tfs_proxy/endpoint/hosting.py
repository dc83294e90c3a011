"""All endpoints of a run: they are created, changed and deleted by name, and watched while they serve."""

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any

from tfs_proxy.endpoint.calls.errors import AwsError, refused
from tfs_proxy.endpoint.containers.starter import ContainerStarter
from tfs_proxy.endpoint.description.catalogue import Catalogue
from tfs_proxy.endpoint.description.operations_file import OperationRequest
from tfs_proxy.endpoint.hosted_endpoint import UPDATING, HostedEndpoint
from tfs_proxy.errors import SettingsError, StopServing
from tfs_proxy.supervisor.process import ChildProcess

log = logging.getLogger(__name__)

WATCH_SECONDS = 1.0


class Hosting:
    """The endpoints by name; ``catalogue`` has what they are made of."""

    def __init__(self, catalogue: Catalogue, starter: ContainerStarter) -> None:
        self.catalogue = catalogue
        self.endpoints: dict[str, HostedEndpoint] = {}
        self._starter = starter
        self._working: set[asyncio.Task[None]] = set()

    async def start_all(self) -> None:
        """Start every endpoint of the catalogue; raises StopServing if one can't be started."""
        made = [self._made(name) for name in self.catalogue.endpoints]
        await asyncio.gather(*(endpoint.start() for endpoint in made))

    def known(self, name: str) -> HostedEndpoint:
        """The endpoint of a name; raises AwsError if there is none."""
        if name not in self.endpoints:
            raise refused(f"Endpoint {name} of account local not found.")
        return self.endpoints[name]

    def create(self, request: OperationRequest) -> None:
        """Take a request that creates something; endpoints and components start. Raises AwsError."""
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
        """Begin to change an endpoint to another config, as UpdateEndpoint; raises AwsError."""
        endpoint = self.known(parameters["EndpointName"])
        config = self.catalogue.configs.get(parameters["EndpointConfigName"])
        if config is None:
            raise refused(f"Could not find endpoint configuration {parameters['EndpointConfigName']}.")
        refuse_while_changing(endpoint)
        retains = parameters.get("RetainAllVariantProperties", False)
        self._in_background(endpoint.update(config, retains_properties=retains))

    def change_weights(self, parameters: Mapping[str, Any]) -> None:
        """Begin to change shares and counts, as UpdateEndpointWeightsAndCapacities; raises AwsError."""
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
        """Begin to end an endpoint; raises AwsError if there is none."""
        endpoint = self.known(name)
        del self.endpoints[name]
        self.catalogue.forget("CreateEndpoint", name)
        self._in_background(endpoint.stop())

    def delete_component(self, name: str) -> None:
        """Begin to end the copies of an inference component; raises AwsError if its endpoint is gone."""
        component = self.catalogue.components[name]
        self.catalogue.forget("CreateInferenceComponent", name)
        self._in_background(self.known(component.endpoint).remove_component(name))

    def children(self) -> Iterator[ChildProcess]:
        """The processes of all containers, as they are when somebody looks."""
        for endpoint in self.endpoints.values():
            for group in endpoint.groups():
                for instance in group.instances:
                    yield from (each.child for each in instance.containers if each.child is not None)

    async def watch(self) -> None:
        """Start instances anew whose containers end; for ever."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            await asyncio.gather(*(endpoint.replace_failed() for endpoint in self.endpoints.values()))

    async def stop(self) -> None:
        """End all endpoints, once they have answered what they have."""
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
    """Raise AwsError for an endpoint that is being changed already."""
    if endpoint.status == UPDATING:
        raise refused(f"Endpoint {endpoint.name} is being updated: wait until it is InService.")


async def _logged(work: Coroutine[None, None, None]) -> None:
    try:
        await work
    except (StopServing, AwsError) as error:
        log.error("%s", error)  # noqa: TRY400 - the sentence says it all
