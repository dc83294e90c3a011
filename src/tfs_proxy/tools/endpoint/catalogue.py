"""Models, configs and endpoints that AWS's operations have created, by name."""

import operator
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tfs_proxy.tools.endpoint.aws_api import problems, refused
from tfs_proxy.tools.endpoint.delivery import async_config
from tfs_proxy.tools.endpoint.job_request import JobRequest, conflicts_of_job, job_request
from tfs_proxy.tools.endpoint.operations import (
    DIRECT,
    KINDS,
    LEAST_OUTSTANDING,
    OPERATIONS,
    SERIAL,
    STARTUP_SECONDS,
    ContainerDefinition,
    EndpointConfig,
    HostedModel,
    OperationRequest,
    Variant,
    arn,
    located,
    with_addresses,
)
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.layout import LocalFiles
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.values.resources import available_resources

INSTANCE_BYTES = 512 * MEGABYTE
"""Memory of a small instance, about what always runs of it."""

MANY_MODELS = "MultiModel"
PRIMARY = "primary"
"""AWS's name in errors for the container of a model with only one."""


def container_definitions(
    containers: Sequence[Mapping[str, Any]], folder: Path
) -> Iterator[ContainerDefinition]:
    """AWS's container definitions as values; relative paths start from ``folder``.

    Raises SettingsError for model data of a kind that is not available here.
    """
    for number, container in enumerate(containers, start=1):
        by_place = PRIMARY if len(containers) == 1 else f"container{number}"
        cache = container.get("MultiModelConfig", {}).get("ModelCacheSetting", "Enabled")
        yield ContainerDefinition(
            name=container.get("ContainerHostname", by_place),
            image=container.get("Image"),
            archive=_archive(container, folder),
            many_models=container.get("Mode") == MANY_MODELS,
            caches_models=cache == "Enabled",
            environment=container.get("Environment", {}),
        )


def _archive(container: Mapping[str, Any], folder: Path) -> str | None:
    source = container.get("ModelDataSource", {}).get("S3DataSource", {})
    address = container.get("ModelDataUrl") or source.get("S3Uri")
    return None if address is None else located(address, folder)


def _exists(kind: str, name: str) -> str:
    """AWS's sentence for a name that is taken, by which its SDKs know that they can go on."""
    words = {"EndpointConfig": "endpoint configuration"}
    return f'Cannot create already existing {words.get(kind, kind.lower())} "{arn(kind, name)}".'


class Catalogue:
    """The things by name; their requests may name no files but ``files``."""

    def __init__(self, files: LocalFiles) -> None:
        self._files = files
        self.models: dict[str, HostedModel] = {}
        self.configs: dict[str, EndpointConfig] = {}
        self.endpoints: dict[str, str] = {}
        self.jobs: dict[str, JobRequest] = {}
        self.created: dict[str, dict[str, Mapping[str, Any]]] = {operation: {} for operation in OPERATIONS}

    def create(self, request: OperationRequest) -> None:
        """Raises SettingsError with place and AWS's member if the request is refused."""
        found = problems(request.operation, request.parameters)
        name = request.name
        if not found and name in self.created[request.operation]:
            place = "" if request.place == request.operation else f"{request.place}: "
            raise SettingsError(f"{place}{_exists(request.operation.removeprefix('Create'), name)}")
        found = found or list(self._conflicts(request))
        if found:
            raise SettingsError(f"{request.place} is refused: {'; '.join(found)}.")
        self._keep(request, time.time())

    def forget(self, operation: str, name: str) -> None:
        """Deletes what ``operation`` created under ``name``, if anything."""
        self.created[operation].pop(name, None)
        kept: dict[str, dict[str, Any]] = {
            "CreateModel": self.models,
            "CreateEndpointConfig": self.configs,
            "CreateEndpoint": self.endpoints,
        }
        kept[operation].pop(name, None)

    def _keep(self, request: OperationRequest, created: float) -> None:
        parameters = request.parameters
        self.created[request.operation][request.name] = {**parameters, "CreationTime": created}
        match request.operation:
            case "CreateModel":
                self.models[request.name] = _model(request)
            case "CreateEndpointConfig":
                self.configs[request.name] = _config(request)
            case "CreateEndpoint":
                self.endpoints[request.name] = parameters["EndpointConfigName"]
            case "CreateTransformJob":
                self.jobs[request.name] = job_request(request, self.models, created)

    def _conflicts(self, request: OperationRequest) -> Iterator[str]:
        """Faults beyond AWS's service model: names that must exist, or differ, and files out of bounds."""
        parameters = request.parameters
        try:
            with_addresses(parameters, partial(self._checked, request.folder))
            async_config(parameters, request.folder)
        except SettingsError as error:
            yield str(error).rstrip(".")
            return
        match request.operation:
            case "CreateModel":
                yield from _conflicts_of_model(parameters)
            case "CreateEndpointConfig":
                yield from self._conflicts_of_config(parameters)
            case "CreateEndpoint":
                config = parameters["EndpointConfigName"]
                if config not in self.configs:
                    yield f"EndpointConfigName {config} is unknown: CreateEndpointConfig has not made it"
            case "CreateTransformJob":
                yield from conflicts_of_job(request, self.models, self.created["CreateModel"])

    def _checked(self, folder: Path, member: str, address: str) -> str:
        self._files.check(member, located(address, folder, member))
        return address

    def _conflicts_of_config(self, parameters: Mapping[str, Any]) -> Iterator[str]:
        names: set[str] = set()
        for place, variant in enumerate(parameters["ProductionVariants"]):
            path = f"ProductionVariants[{place}]"
            name = variant["VariantName"]
            if name in names:
                yield f"{path}.VariantName {name} is there twice"
            names.add(name)
            model = variant.get("ModelName")
            if model is None:
                yield f"{path}.ModelName is missing: there are no inference components here"
            elif model not in self.models:
                yield f"{path}.ModelName {model} is unknown: CreateModel has not made it"
            if "ServerlessConfig" not in variant and "InitialInstanceCount" not in variant:
                yield f"{path}.InitialInstanceCount is missing"
            yield from _too_many(f"{path}.InitialInstanceCount", variant)


def _too_many(path: str, parameters: Mapping[str, Any]) -> Iterator[str]:
    """Refuse a number of instances that would take the machine down with it."""
    count = parameters.get(path.rpartition(".")[2], 1)
    memory = available_resources().memory_bytes
    if memory is not None and count > (most := max(memory // INSTANCE_BYTES, 1)):
        yield f"{path} {count} is more than the {most} for which this machine has memory"


def _conflicts_of_model(parameters: Mapping[str, Any]) -> Iterator[str]:
    containers = parameters.get("Containers", [])
    if ("PrimaryContainer" in parameters) == bool(containers):
        yield "either PrimaryContainer or Containers is needed, and not both"
    names = [container["ContainerHostname"] for container in containers if "ContainerHostname" in container]
    if len(set(names)) < len(names):
        yield "Containers has a ContainerHostname twice"
    if names and len(names) < len(containers):
        yield "Containers has a ContainerHostname for some and not for all"
    if _mode(parameters) == DIRECT and not names:
        yield "InferenceExecutionConfig.Mode Direct needs Containers with a ContainerHostname each"


def _mode(parameters: Mapping[str, Any]) -> str:
    return str(parameters.get("InferenceExecutionConfig", {}).get("Mode", SERIAL))


def _model(request: OperationRequest) -> HostedModel:
    parameters = request.parameters
    containers = parameters.get("Containers") or [parameters["PrimaryContainer"]]
    definitions = tuple(container_definitions(containers, request.folder))
    return HostedModel(request.name, definitions, _mode(parameters))


def _config(request: OperationRequest) -> EndpointConfig:
    parameters = request.parameters
    return EndpointConfig(
        request.name,
        tuple(map(_variant, parameters["ProductionVariants"])),
        parameters,
        request.folder,
    )


def _variant(parameters: Mapping[str, Any]) -> Variant:
    return Variant(
        parameters["VariantName"],
        parameters["ModelName"],
        parameters.get("InitialInstanceCount", 1),
        float(parameters.get("InitialVariantWeight", 1.0)),
        parameters.get("RoutingConfig", {}).get("RoutingStrategy", LEAST_OUTSTANDING),
        float(parameters.get("ContainerStartupHealthCheckTimeoutInSeconds", STARTUP_SECONDS)),
        parameters.get("ServerlessConfig", {}).get("MaxConcurrency"),
    )


DEFAULT_RESULTS = 10
_FILTERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "Contains": lambda found, wanted: wanted.lower() in found.lower(),
    "Equals": operator.eq,
    "After": operator.ge,
    "Before": operator.le,
}
"""Filters by the ends of their names; botocore cuts times to seconds."""


def listed(
    member: str, kind: str, things: Sequence[Mapping[str, Any]], parameters: Mapping[str, Any]
) -> Mapping[str, Any]:
    """One page of the things that pass the filters, as ``member``; a token is the name of its last one.

    Raises AwsError for an unknown token.
    """
    named = {"Name": (name := KINDS[kind]), "Status": f"{kind}Status"}
    by = named.get(parameters.get("SortBy", ""), "CreationTime")
    descending = parameters.get("SortOrder", "Descending") == "Descending"
    fit = sorted(things, key=lambda thing: thing[by], reverse=descending)
    token = parameters.get("NextToken")
    if token is not None:
        places = [place for place, thing in enumerate(fit, start=1) if thing[name] == token]
        if not places:
            raise refused(f"NextToken {token} is none that a list has ended with.")
        fit = fit[places[0] :]
    for ending, holds in _FILTERS.items():
        for parameter in (each for each in parameters if each.endswith(ending)):
            of = parameter.removesuffix(ending)
            wanted = parameters[parameter]
            fit = [thing for thing in fit if holds(thing[named.get(of, of)], wanted)]
    most = parameters.get("MaxResults", DEFAULT_RESULTS)
    return {member: fit[:most]} | ({"NextToken": fit[most - 1][name]} if len(fit) > most else {})
