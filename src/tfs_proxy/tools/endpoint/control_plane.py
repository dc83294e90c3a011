"""Calls of `sagemaker` that SDKs make besides the runtime's: create, describe, list, update, delete."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfs_proxy.tools.endpoint.aws_api import AwsError, problems, refused
from tfs_proxy.tools.endpoint.catalogue import NAME_MEMBERS
from tfs_proxy.tools.endpoint.hosted_endpoint import HostedEndpoint
from tfs_proxy.tools.endpoint.hosting import Hosting
from tfs_proxy.tools.endpoint.instances import InstanceGroup
from tfs_proxy.tools.endpoint.operations import ACCOUNT, REGION, OperationRequest
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse

_ARN_KINDS = {
    "Model": "model",
    "EndpointConfig": "endpoint-config",
    "Endpoint": "endpoint",
    "InferenceComponent": "inference-component",
}


def arn(kind: str, name: str) -> str:
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


TARGET, PREFIX = "x-amz-target", "SageMaker."
CONTENT_TYPE = "application/x-amz-json-1.1"
REFUSED = "ValidationException"
OK, BAD_REQUEST = 200, 400
KINDS = {operation.removeprefix("Create"): member for operation, member in NAME_MEMBERS.items()}
"""Model, EndpointConfig, Endpoint and InferenceComponent, with the member that has each one's name."""

Call = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class ControlPlane:
    """Answers ``X-Amz-Target: SageMaker.OPERATION``."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting
        self._calls: dict[str, Call] = {
            "UpdateEndpoint": self._update,
            "UpdateEndpointWeightsAndCapacities": self._change_weights,
        }
        for kind in KINDS:
            self._calls[f"Create{kind}"] = self._creating(kind)
            self._calls[f"Describe{kind}"] = self._describing(kind)
            self._calls[f"List{kind}s"] = self._listing(kind)
            self._calls[f"Delete{kind}"] = self._deleting(kind)

    def respond(self, request: HttpRequest) -> HttpResponse:
        """The answer to one call; botocore can decode its errors."""
        operation = request.headers.get(TARGET, "").removeprefix(PREFIX)
        try:
            answer = self._answer(operation, request.body)
        except AwsError as error:
            return _json(BAD_REQUEST, {"__type": REFUSED, "message": error.message})
        return _json(OK, answer)

    def _answer(self, operation: str, body: bytes) -> Mapping[str, Any]:
        call = self._calls.get(operation)
        if call is None:
            raise refused(f"{operation or 'A call without X-Amz-Target'} is not answered here.")
        try:
            parameters = json.loads(body or b"{}")
        except ValueError as error:
            raise refused(f"The body is not JSON: {error}.") from error
        found = problems(operation, parameters)
        if found:
            raise refused("; ".join(found))
        return call(parameters)

    def _creating(self, kind: str) -> Call:
        def create(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
            operation = f"Create{kind}"
            self._hosting.create(OperationRequest(operation, parameters, operation, Path.cwd()))
            return {f"{kind}Arn": arn(kind, parameters[KINDS[kind]])}

        return create

    def _describing(self, kind: str) -> Call:
        def describe(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
            return described(kind, self._found(kind, parameters), self._hosting)

        return describe

    def _listing(self, kind: str) -> Call:
        def list_all(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
            wanted = parameters.get("NameContains", "")
            names = [name for name in self._hosting.catalogue.created[f"Create{kind}"] if wanted in name]
            summaries = [described(kind, name, self._hosting) for name in names]
            return {f"{kind}s": summaries}

        return list_all

    def _deleting(self, kind: str) -> Call:
        def delete(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
            name = self._found(kind, parameters)
            match kind:
                case "Endpoint":
                    self._hosting.delete(name)
                case "InferenceComponent":
                    self._hosting.delete_component(name)
                case _:
                    self._hosting.catalogue.forget(f"Create{kind}", name)
            return {}

        return delete

    def _found(self, kind: str, parameters: Mapping[str, Any]) -> str:
        name = str(parameters[KINDS[kind]])
        if name not in self._hosting.catalogue.created[f"Create{kind}"]:
            raise refused(f'Could not find {kind} "{name}".')
        return name

    def _update(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        self._hosting.update(parameters)
        return {"EndpointArn": arn("Endpoint", parameters["EndpointName"])}

    def _change_weights(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        self._hosting.change_weights(parameters)
        return {"EndpointArn": arn("Endpoint", parameters["EndpointName"])}


def _json(status: int, body: Mapping[str, Any]) -> HttpResponse:
    return HttpResponse(status, json.dumps(body).encode(), {"Content-Type": CONTENT_TYPE})
