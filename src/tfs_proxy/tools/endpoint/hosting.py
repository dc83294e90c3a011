"""Endpoints of a run and their variants: created, changed and deleted by AWS's operations."""

import asyncio
import logging
import random
import time
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from tfs_proxy.run.process import ChildProcess
from tfs_proxy.tools.endpoint.aws_api import NOT_READY, UNAVAILABLE, AwsError, refused
from tfs_proxy.tools.endpoint.catalogue import Catalogue
from tfs_proxy.tools.endpoint.instances import InstanceGroup, by_weight, start_all
from tfs_proxy.tools.endpoint.operations import (
    IN_SERVICE,
    UPDATING,
    EndpointConfig,
    OperationRequest,
    Variant,
    warn_of_capture,
)
from tfs_proxy.tools.endpoint.starter import ContainerStarter
from tfs_proxy.values.errors import StopServing

log = logging.getLogger(__name__)

CREATING = "Creating"
FAILED = "Failed"


class HostedEndpoint:
    """The endpoint ``name`` with ``config``; ``status`` is AWS's EndpointStatus."""

    def __init__(
        self, name: str, config: EndpointConfig, catalogue: Catalogue, starter: ContainerStarter
    ) -> None:
        self.name = name
        self.config = config
        self.status = CREATING
        self.failure_reason = ""
        self.changed_at = time.time()
        self.variants: dict[str, InstanceGroup] = {}
        self._catalogue = catalogue
        self._starter = starter
        self.draw = random.Random()  # noqa: S311 - it only spreads load

    async def start(self) -> None:
        """Starts all variants. Raises StopServing, with the status Failed, if one fails."""
        try:
            self.variants = await self._started(self.config)
        except StopServing as error:
            self._change(FAILED, str(error))
            raise
        self._change(IN_SERVICE)

    async def update(self, config: EndpointConfig, *, retains_properties: bool = False) -> None:
        """Starts the variants of ``config``, sends new requests there, and drains and ends the old ones.

        With ``retains_properties``, existing variants keep weights and counts. Raises StopServing, with the
        old ones still in service, if new ones can't be started.
        """
        self._change(UPDATING)
        if retains_properties:
            config = self._with_current_properties(config)
        try:
            variants = await self._started(config)
        except StopServing as error:
            self._change(IN_SERVICE, str(error))
            raise
        old = self.variants
        self.config = config
        self.variants = variants
        self._change(IN_SERVICE)
        await asyncio.gather(*(group.drain_and_stop() for group in old.values()))

    async def scale(self, variant: str, count: int) -> None:
        """Raises AwsError for an unknown variant, and what `start` raises."""
        self._change(UPDATING)
        try:
            await self.variant(variant).scale(count)
        finally:
            self._change(IN_SERVICE)

    def variant(self, name: str) -> InstanceGroup:
        """Raises AwsError for an unknown variant."""
        if name not in self.variants:
            raise refused(f"Variant {name} not found on endpoint {self.name}.")
        return self.variants[name]

    def group_for(self, members: Mapping[str, str]) -> InstanceGroup:
        """The variant for a request with these members. Raises AwsError."""
        if self.status == CREATING:
            raise AwsError(NOT_READY, f"Endpoint {self.name} is not in service yet; try again.")
        wanted = members.get("TargetVariant")
        if wanted is not None:
            return self.variant(wanted)
        ready = [group for group in self.variants.values() if group.in_service]
        if not ready:
            raise AwsError(UNAVAILABLE, f"No instance of endpoint {self.name} is in service.")
        return by_weight(ready, self.draw)

    async def replace_failed(self) -> None:
        await asyncio.gather(*(group.replace_failed() for group in self.variants.values()))

    async def stop(self) -> None:
        await asyncio.gather(*(group.drain_and_stop() for group in self.variants.values()))

    def _change(self, status: str, reason: str = "") -> None:
        self.status = status
        self.failure_reason = reason
        self.changed_at = time.time()
        log.info("endpoint %s: %s%s", self.name, status, f": {reason}" if reason else "")

    def _with_current_properties(self, config: EndpointConfig) -> EndpointConfig:
        def kept(variant: Variant) -> Variant:
            group = self.variants.get(variant.name)
            if group is None:
                return variant
            return replace(variant, weight=group.variant.weight, instance_count=len(group.instances))

        return replace(config, variants=tuple(map(kept, config.variants)))

    async def _started(self, config: EndpointConfig) -> dict[str, InstanceGroup]:
        """The started variants of ``config``. Raises StopServing."""
        warn_of_capture(f"endpoint {self.name}", config.parameters)
        variants = {
            each.name: InstanceGroup(self.name, each, self._catalogue.models[each.model], self._starter)
            for each in config.variants
        }
        await start_all(list(variants.values()))
        return variants


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
        """Creates things, and starts endpoints in the background. Raises SettingsError."""
        self.catalogue.create(request)
        if request.operation == "CreateEndpoint":
            self._in_background(self._made(request.parameters["EndpointName"]).start())

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
                group = endpoint.variant(variant)
                group.variant = replace(group.variant, weight=float(wanted["DesiredWeight"]))
            if "DesiredInstanceCount" in wanted:
                self._in_background(endpoint.scale(variant, wanted["DesiredInstanceCount"]))

    def delete(self, name: str) -> None:
        """Starts to end an endpoint. Raises AwsError for an unknown name."""
        endpoint = self.known(name)
        del self.endpoints[name]
        self.catalogue.forget("CreateEndpoint", name)
        self._in_background(endpoint.stop())

    def children(self) -> Iterator[ChildProcess]:
        for endpoint in self.endpoints.values():
            for group in endpoint.variants.values():
                for instance in group.instances:
                    yield from (each.child for each in instance.containers if each.child is not None)

    async def watch(self) -> None:
        """Replaces failed instances; never returns."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            await asyncio.gather(*(endpoint.replace_failed() for endpoint in self.endpoints.values()))

    async def stop(self) -> None:
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
