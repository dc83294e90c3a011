"""InvokeEndpoint: one request, passed through the containers of one instance."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack

from msgspec import Struct, field
from msgspec.structs import replace

from tfs_proxy.tools.endpoint.aws_api import (
    INVOKE,
    LONGEST_MESSAGE,
    NO_ANSWER,
    NOT_READY,
    TOO_LARGE,
    UNAVAILABLE,
    AwsError,
    client_headers,
    container_headers,
    given_members,
    model_error,
    refused,
)
from tfs_proxy.tools.endpoint.container import HostedContainer, ManyModels
from tfs_proxy.tools.endpoint.hosting import HostedEndpoint
from tfs_proxy.tools.endpoint.instances import InstanceGroup, VariantInstance
from tfs_proxy.tools.endpoint.operations import ACCOUNT, DIRECT, REGION
from tfs_proxy.values.errors import AnswerTooLarge, NotReached, UpstreamError, UpstreamTimeout
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse, StreamedResponse
from tfs_proxy.wire.media_types import BYTES
from tfs_proxy.wire.routes import INVOCATIONS

MOST_BYTES = 6_291_456
"""Limit of bodies in both directions (botocore's BodyBlob)."""

SERVERLESS_BYTES = 4_194_304
"""The same for a serverless variant (docs/reference/sagemaker.md)."""

SUCCESSES = range(200, 300)
TIMED_OUT = (
    "The container did not answer in time. Look at its latency, let it answer sooner, or call it "
    "asynchronously."
)
NO_CONNECTION, BROKEN = "The container can't be reached.", "The connection to the container broke."


class InvocationLimits(Struct, frozen=True):
    """Limits: ``seconds`` for all containers together, ``answer_bytes`` for each answer."""

    seconds: float = 60.0
    answer_bytes: int = MOST_BYTES


class Passage(Struct, frozen=True):
    """A request with these ``members`` through ``instance``, whose time starts now."""

    endpoint: str
    instance: VariantInstance
    members: Mapping[str, str]
    limits: InvocationLimits
    began: float = field(default_factory=time.monotonic)

    async def through(self, body: bytes) -> HttpResponse:
        """The last container's answer; each one's is the next one's request. Raises AwsError."""
        *others, last = _chosen_containers(self.instance, self.members)
        body, headers = await self._before_last(others, body)
        return await self._ask_one(last, body, headers)

    async def streamed(self, body: bytes, held: AsyncExitStack) -> StreamedResponse:
        """Streams the last container's answer; ``held`` ends with it. Raises AwsError."""
        *others, last = _chosen_containers(self.instance, self.members)
        body, headers = await self._before_last(others, body)
        path = await self._path(last)
        with self.translated(last):
            answer = await last.stream(path, body, headers, self._remaining_seconds)
            held.push_async_callback(self._note_status, last, answer.status)
            if answer.status not in SUCCESSES:
                text = await _beginning_of(answer)
                raise self._failed(last, answer.status, text.decode(errors="replace"))
        return answer

    async def _before_last(
        self, containers: Sequence[HostedContainer], body: bytes
    ) -> tuple[bytes, dict[str, str]]:
        headers = container_headers(self.members)
        for container in containers:
            sent = {name: value for name, value in headers.items() if name != "Accept"}  # it is for the last
            answer = await self._ask_one(container, body, sent)
            body = answer.body
            headers = {**headers, "Content-Type": answer.header("Content-Type") or BYTES}
        return body, headers

    async def _ask_one(
        self, container: HostedContainer, body: bytes, headers: Mapping[str, str]
    ) -> HttpResponse:
        path = await self._path(container)
        with self.translated(container):
            answer = await container.ask("POST", path, body, headers, self._remaining_seconds)
        await self._note_status(container, answer.status)
        return self._good(container, answer)

    async def _path(self, container: HostedContainer) -> str:
        models = self.instance.many_models.get(container.name)
        target = target_of(models, self.members)
        if models is None:
            return INVOCATIONS.path
        return await models.path_for(target, self._log_stream(container), self._remaining_seconds)

    async def _note_status(self, container: HostedContainer, status: int) -> None:
        models = self.instance.many_models.get(container.name)
        if models is not None:
            await models.answered(target_of(models, self.members), status)

    @contextlib.contextmanager
    def translated(self, container: HostedContainer) -> Iterator[None]:
        """Turns an UpstreamError in the block into an AwsError (ModelError)."""
        try:
            yield
        except UpstreamTimeout as error:
            raise self._failed(container, NO_ANSWER, TIMED_OUT) from error
        except NotReached as error:
            raise self._failed(container, NO_ANSWER, NO_CONNECTION) from error
        except AnswerTooLarge as error:
            raise self._failed(container, NO_ANSWER, str(error)) from error
        except UpstreamError as error:
            raise self._failed(container, NO_ANSWER, BROKEN) from error

    def _good(self, container: HostedContainer, answer: HttpResponse) -> HttpResponse:
        if answer.status not in SUCCESSES:
            raise self._failed(container, answer.status, answer.body.decode(errors="replace"))
        if len(answer.body) > self.limits.answer_bytes:
            text = f"The answer has {len(answer.body)} bytes; the most is {self.limits.answer_bytes}."
            raise self._failed(container, answer.status, text)
        return answer

    def _failed(self, container: HostedContainer, status: int, text: str) -> AwsError:
        return model_error(container.name, status, text, self._log_stream(container))

    @property
    def _remaining_seconds(self) -> float:
        return max(self.began + self.limits.seconds - time.monotonic(), 0.001)

    def _log_stream(self, container: HostedContainer) -> str:
        """The name that the container's log would have in CloudWatch."""
        suffix = "" if len(self.instance.containers) == 1 else f"/{container.name}"
        group = f"/aws/sagemaker/Endpoints/{self.endpoint}"
        return f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{group}:log-stream:{self.instance.name}{suffix}"


async def _beginning_of(answer: StreamedResponse) -> bytes:
    """The beginning of an error's body, as much as clients may see; the rest is not read."""
    found = b""
    async with contextlib.aclosing(answer.parts):
        async for part in answer.parts:
            found += part
            if len(found) >= LONGEST_MESSAGE:
                break
    return found


def _chosen_containers(instance: VariantInstance, members: Mapping[str, str]) -> tuple[HostedContainer, ...]:
    """The containers for a request: all of a pipeline, or the named one. Raises AwsError."""
    name = members.get("TargetContainerHostname")
    if instance.model.mode != DIRECT:
        if name is not None:
            raise refused("TargetContainerHostname is for models of the mode Direct.")
        return instance.containers
    if name is None:
        raise refused("TargetContainerHostname is missing: the model has the mode Direct.")
    named = tuple(container for container in instance.containers if container.name == name)
    if not named:
        raise refused(f"TargetContainerHostname {name} is not a container of this endpoint.")
    return named


def target_of(models: ManyModels | None, members: Mapping[str, str]) -> str:
    """The archive that a request names. Raises AwsError if it should name one and does not."""
    target = members.get("TargetModel")
    if models is not None and target is None:
        raise refused("TargetModel is missing: this container has many models.")
    return (target or "").removeprefix("/")


async def invoke(endpoint: HostedEndpoint, request: HttpRequest) -> HttpResponse:
    """The containers' answer. Raises AwsError."""
    members = given_members(INVOKE, request.headers)
    refuse_asynchronous(endpoint)
    group = endpoint.group_for(members)
    answer = await ask(endpoint, group, members, request.body, InvocationLimits())
    return HttpResponse(answer.status, answer.body, client_headers(INVOKE, answer, group.variant.name))


async def ask(
    endpoint: HostedEndpoint,
    group: InstanceGroup,
    members: Mapping[str, str],
    body: bytes,
    limits: InvocationLimits,
) -> HttpResponse:
    """The good answer of an instance of the group. Raises AwsError for anything else."""
    instance = picked(endpoint, group, members, body)
    if group.variant.concurrency is not None:
        limits = replace(limits, answer_bytes=SERVERLESS_BYTES)
    with instance.answering():
        answer = await Passage(endpoint.name, instance, members, limits).through(body)
    endpoint.sessions.learn(group, instance, answer)
    return answer


def picked(
    endpoint: HostedEndpoint, group: InstanceGroup, members: Mapping[str, str], body: bytes = b""
) -> VariantInstance:
    """An instance for a request, that of its session if it has one.

    Raises AwsError if none is in service (try again if one is starting), and over a serverless one's limits.
    """
    if group.variant.concurrency is not None:
        refuse_large(body, SERVERLESS_BYTES)
        if sum(each.outstanding for each in group.instances) >= group.variant.concurrency:
            raise AwsError("ThrottlingException", "Rate exceeded: MaxConcurrency requests are under way.")
    home = endpoint.sessions.home(members)
    if home is not None:
        return home.instance
    instance = group.pick(endpoint.draw)
    if instance is None and group.is_starting:
        raise AwsError(NOT_READY, f"{group.name} is not in service yet; try again.")
    if instance is None:
        raise AwsError(UNAVAILABLE, f"No instance of {group.name} is in service.")
    return instance


def refuse_large(body: bytes, most: int = MOST_BYTES) -> None:
    """Raises AwsError for a body over the limit."""
    if len(body) > most:
        raise AwsError(TOO_LARGE, f"The body has {len(body)} bytes; the most is {most}.")


def refuse_asynchronous(endpoint: HostedEndpoint) -> None:
    """Raises AwsError if the endpoint takes only asynchronous calls."""
    if "AsyncInferenceConfig" in endpoint.config.parameters:
        raise refused(f"Endpoint {endpoint.name} is asynchronous: call InvokeEndpointAsync.")
