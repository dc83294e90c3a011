"""Calls of `sagemaker` that SDKs make besides the runtime's: create, describe, list, update, delete."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tfs_proxy.tools.endpoint.aws_api import CONTROL_PLANE, LOGS, REFUSED, AwsError, problems, refused
from tfs_proxy.tools.endpoint.catalogue import listed
from tfs_proxy.tools.endpoint.hosting import Hosting
from tfs_proxy.tools.endpoint.instances import InstanceGroup
from tfs_proxy.tools.endpoint.jobs import LogStreams, TransformJobs
from tfs_proxy.tools.endpoint.operations import JOB, KINDS, OperationRequest, arn
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse


def described(kind: str, name: str, hosting: Hosting) -> dict[str, Any]:
    """The answer to a describe call; times are in seconds since 1970."""
    created = hosting.catalogue.created[f"Create{kind}"][name]
    common = {**created, f"{kind}Arn": arn(kind, name)}
    return {**common, **_endpoint(name, hosting)} if kind == "Endpoint" else common


def _endpoint(name: str, hosting: Hosting) -> Mapping[str, Any]:
    endpoint = hosting.known(name)
    answer = {
        "EndpointConfigName": endpoint.config.name,
        "EndpointStatus": endpoint.status,
        "LastModifiedTime": endpoint.changed_at,
        "ProductionVariants": [_variant(each) for each in endpoint.variants.values()],
    }
    if endpoint.failure_reason:
        answer["FailureReason"] = endpoint.failure_reason
    return answer


def _variant(group: InstanceGroup) -> Mapping[str, Any]:
    images = [container.image for container in group.model.containers if container.image]
    return {
        "VariantName": group.variant.name,
        "DeployedImages": [{"SpecifiedImage": image, "ResolvedImage": image} for image in images],
        "CurrentWeight": group.variant.weight,
        "DesiredWeight": group.variant.weight,
        "CurrentInstanceCount": len(group.in_service),
        "DesiredInstanceCount": len(group.instances),
    }


TARGET = "x-amz-target"
SERVICES = {"SageMaker": CONTROL_PLANE, "Logs_20140328": LOGS}
"""AWS's services by what stands before the operation in the header."""

CONTENT_TYPE = "application/x-amz-json-1.1"
VALIDATION = "ValidationException"
"""Name of ValidationError in this service."""

Call = Callable[[Mapping[str, Any]], Mapping[str, Any]]
Start = Callable[[Mapping[str, Any]], None]


class ControlPlane:
    """Answers ``X-Amz-Target: SageMaker.OPERATION``, and CloudWatch's calls for the log of a job."""

    def __init__(self, hosting: Hosting, jobs: TransformJobs, logs: LogStreams) -> None:
        self._hosting = hosting
        self._calls: dict[str, Call] = {
            "UpdateEndpoint": partial(self._change, hosting.update),
            "UpdateEndpointWeightsAndCapacities": partial(self._change, hosting.change_weights),
            **jobs.calls,
            **logs.calls,
        }
        for kind in KINDS.keys() - {JOB}:
            self._calls[f"Create{kind}"] = partial(self._create, kind)
            self._calls[f"Describe{kind}"] = partial(self._describe, kind)
            self._calls[f"List{kind}s"] = partial(self._list, kind)
            self._calls[f"Delete{kind}"] = partial(self._delete, kind)

    def respond(self, request: HttpRequest) -> HttpResponse:
        """The answer to one call; botocore can decode its errors."""
        service, _, operation = request.headers.get(TARGET, "").partition(".")
        try:
            answer = self._answer(SERVICES.get(service, CONTROL_PLANE), operation, request.body)
        except AwsError as error:
            code = VALIDATION if error.code == REFUSED else error.code
            return _json(HTTPStatus.BAD_REQUEST, {"__type": code, "message": error.message})
        except SettingsError as error:
            return _json(HTTPStatus.BAD_REQUEST, {"__type": VALIDATION, "message": str(error)})
        return _json(HTTPStatus.OK, answer)

    def _answer(self, service: str, operation: str, body: bytes) -> Mapping[str, Any]:
        call = self._calls.get(operation)
        if call is None:
            named = operation or "A call without X-Amz-Target"
            raise refused(f"{named} is not answered here: {', '.join(sorted(self._calls))} are.")
        try:
            parameters = json.loads(body or b"{}")
        except ValueError as error:
            raise refused(f"The body is not JSON: {error}.") from error
        found = problems(operation, parameters, service)
        if found:
            raise refused("; ".join(found))
        return call(parameters)

    def _create(self, kind: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        operation = f"Create{kind}"
        self._hosting.create(OperationRequest(operation, parameters, operation, Path.cwd()))
        return {f"{kind}Arn": arn(kind, parameters[KINDS[kind]])}

    def _describe(self, kind: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        return described(kind, self._found(kind, parameters), self._hosting)

    def _list(self, kind: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        names = self._hosting.catalogue.created[f"Create{kind}"]
        return listed(f"{kind}s", kind, [described(kind, name, self._hosting) for name in names], parameters)

    def _delete(self, kind: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        name = self._found(kind, parameters)
        if kind == "Endpoint":
            self._hosting.delete(name)
        else:
            self._hosting.catalogue.forget(f"Create{kind}", name)
        return {}

    def _found(self, kind: str, parameters: Mapping[str, Any]) -> str:
        name = str(parameters[KINDS[kind]])
        if name not in self._hosting.catalogue.created[f"Create{kind}"]:
            raise refused(f'Could not find {kind} "{name}".')
        return name

    @staticmethod
    def _change(
        start: Callable[[Mapping[str, Any]], None], parameters: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        start(parameters)
        return {"EndpointArn": arn("Endpoint", parameters["EndpointName"])}


def _json(status: int, body: Mapping[str, Any]) -> HttpResponse:
    return HttpResponse(status, json.dumps(body).encode(), {"Content-Type": CONTENT_TYPE})
