"""What describe and list calls say of models, configs, endpoints and components, in AWS's members."""

from collections.abc import Callable, Mapping
from typing import Any

from tfs_proxy.endpoint.description.values import ACCOUNT, REGION
from tfs_proxy.endpoint.hosted_endpoint import HostedEndpoint
from tfs_proxy.endpoint.hosting import Hosting
from tfs_proxy.endpoint.variants.group import InstanceGroup

_ARN_KINDS = {
    "Model": "model",
    "EndpointConfig": "endpoint-config",
    "Endpoint": "endpoint",
    "InferenceComponent": "inference-component",
}


def arn(kind: str, name: str) -> str:
    """The Amazon Resource Name of something here."""
    return f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:{_ARN_KINDS[kind]}/{name.lower()}"


def described(kind: str, name: str, hosting: Hosting) -> dict[str, Any]:
    """The answer to a describe call; times are in seconds since 1970."""
    created = hosting.catalogue.created[f"Create{kind}"][name]
    common = {**created.parameters, f"{kind}Arn": arn(kind, name), "CreationTime": created.at}
    more: Callable[[str, Hosting], Mapping[str, Any]] | None = {
        "Endpoint": _endpoint,
        "InferenceComponent": _component,
    }.get(kind)
    return {**common, **(more(name, hosting) if more else {})}


def _endpoint(name: str, hosting: Hosting) -> Mapping[str, Any]:
    endpoint = hosting.known(name)
    answer = {
        "EndpointConfigName": endpoint.config.name,
        "EndpointStatus": endpoint.status,
        "LastModifiedTime": endpoint.changed_at,
        "ProductionVariants": [_variant(each) for each in endpoint.variants.values()],
    }
    if endpoint.shadows:
        answer["ShadowProductionVariants"] = [_variant(each) for each in endpoint.shadows.values()]
    if endpoint.failure_reason:
        answer["FailureReason"] = endpoint.failure_reason
    return answer


def _variant(group: InstanceGroup) -> Mapping[str, Any]:
    images = [container.image for container in group.plan.model.containers if container.image]
    return {
        "VariantName": group.plan.variant,
        "DeployedImages": [{"SpecifiedImage": image, "ResolvedImage": image} for image in images],
        "CurrentWeight": group.weight,
        "DesiredWeight": group.weight,
        "CurrentInstanceCount": len(group.in_service),
        "DesiredInstanceCount": group.wanted,
    }


def _component(name: str, hosting: Hosting) -> Mapping[str, Any]:
    component = hosting.catalogue.components[name]
    endpoint = hosting.known(component.endpoint)
    return {
        "EndpointArn": arn("Endpoint", component.endpoint),
        "VariantName": component.variant,
        "LastModifiedTime": endpoint.changed_at,
        "InferenceComponentStatus": _component_status(endpoint, name),
        "RuntimeConfig": {"DesiredCopyCount": component.copies, "CurrentCopyCount": _copies(endpoint, name)},
    }


def _copies(endpoint: HostedEndpoint, name: str) -> int:
    group = endpoint.components.get(name)
    return 0 if group is None else len(group.in_service)


def _component_status(endpoint: HostedEndpoint, name: str) -> str:
    group = endpoint.components.get(name)
    if group is None or (group.instances and not group.in_service):
        return "Creating"
    return "InService" if group.in_service else "Failed"
