"""InvokeEndpoint: one request, answered by the containers of one instance."""

import time
from collections.abc import Callable, Mapping

from msgspec import Struct

from tfs_proxy.tools.endpoint.aws_api import (
    INVOKE,
    NOT_READY,
    TOO_LARGE,
    UNAVAILABLE,
    AwsError,
    client_headers,
    given_members,
    original_answer,
    refused,
)
from tfs_proxy.tools.endpoint.hosted_endpoint import HostedEndpoint
from tfs_proxy.tools.endpoint.instances import InstanceGroup, VariantInstance
from tfs_proxy.tools.endpoint.metrics import VariantMetrics
from tfs_proxy.tools.endpoint.passage import MOST_BYTES, InvocationLimits, Passage
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse


class Invocation(Struct, frozen=True):
    """A request for containers: ``members`` are those of the operation's input."""

    members: Mapping[str, str]
    body: bytes


class Invoked(Struct, frozen=True):
    """An invocation that a container has answered, after ``seconds``; a refusal has its status and text."""

    endpoint: HostedEndpoint
    group: InstanceGroup
    invocation: Invocation
    answer: HttpResponse
    seconds: float


class Invoker:
    """Sends invocations to instances' containers, and calls ``on_invoked`` for each."""

    def __init__(self, metrics: VariantMetrics, limits: InvocationLimits | None = None) -> None:
        self.on_invoked: list[Callable[[Invoked], None]] = []
        self._metrics = metrics
        self._limits = limits or InvocationLimits()

    async def invoke_endpoint(self, endpoint: HostedEndpoint, request: HttpRequest) -> HttpResponse:
        """Raises AwsError."""
        invocation = Invocation(given_members(INVOKE, request.headers), request.body)
        refuse_asynchronous(endpoint)
        group = endpoint.group_for(invocation.members)
        began = time.monotonic()
        try:
            answer = await self.ask(endpoint, group, invocation, self._limits)
        except AwsError as error:
            refusal = original_answer(error)
            if refusal is not None:
                self._tell(Invoked(endpoint, group, invocation, refusal, time.monotonic() - began))
            raise
        self._tell(Invoked(endpoint, group, invocation, answer, time.monotonic() - began))
        return HttpResponse(answer.status, answer.body, client_headers(INVOKE, answer, group.plan.variant))

    async def ask(
        self,
        endpoint: HostedEndpoint,
        group: InstanceGroup,
        invocation: Invocation,
        limits: InvocationLimits,
    ) -> HttpResponse:
        """The good answer of an instance of ``group``, counted. Raises AwsError for anything else."""
        with self._metrics.invocation(endpoint.name, group.plan.variant) as counted:
            instance = picked(endpoint, group)
            with instance.answering():
                passage = Passage(endpoint.name, instance, invocation.members, limits)
                return await passage.through(invocation.body, counted)

    def _tell(self, invoked: Invoked) -> None:
        for tell in self.on_invoked:
            tell(invoked)


def picked(endpoint: HostedEndpoint, group: InstanceGroup) -> VariantInstance:
    """An instance for a request. Raises AwsError if none is in service: try again if one is starting."""
    instance = group.pick(endpoint.draw)
    if instance is None and group.is_starting:
        raise AwsError(NOT_READY, f"{group.plan.name} is not in service yet; try again.")
    if instance is None:
        raise AwsError(UNAVAILABLE, f"No instance of {group.plan.name} is in service.")
    return instance


def refuse_large(body: bytes) -> None:
    """Raises AwsError for a body over the limit."""
    if len(body) > MOST_BYTES:
        raise AwsError(TOO_LARGE, f"The body has {len(body)} bytes; the most is {MOST_BYTES}.")


def refuse_asynchronous(endpoint: HostedEndpoint) -> None:
    """Raises AwsError if the endpoint takes only asynchronous calls."""
    if "AsyncInferenceConfig" in endpoint.config.parameters:
        raise refused(f"Endpoint {endpoint.name} is asynchronous: call InvokeEndpointAsync.")
