"""InvokeEndpoint: one request, passed through the containers of one instance."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.run.pipeline.passage import SUCCESSES, ContainerFailed, Passage, seconds_until
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
from tfs_proxy.values.errors import AnswerTooLarge, NotReached, UpstreamTimeout
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse, StreamedResponse
from tfs_proxy.wire.routes import INVOCATIONS

MOST_BYTES = 6_291_456
"""Limit of bodies in both directions (botocore's BodyBlob)."""

SERVERLESS_BYTES = 4_194_304
"""The same for a serverless variant (docs/reference/sagemaker.md)."""

TIMED_OUT = (
    "The container did not answer in time. Look at its latency, let it answer sooner, or call it "
    "asynchronously."
)


class InvocationLimits(Struct, frozen=True):
    """Limits: ``seconds`` for all containers together, ``answer_bytes`` for each answer."""

    seconds: float = 60.0
    answer_bytes: int = MOST_BYTES


class ModelHop:
    """A container of ``instance`` as a request meets it: with the model ``target`` if it has many."""

    def __init__(self, container: HostedContainer, models: ManyModels | None, target: str, log: str) -> None:
        self.name = container.name
        self._container = container
        self._models = models
        self._target = target
        self._log_stream = log

    async def send(self, body: bytes, headers: Mapping[str, str], deadline: float) -> HttpResponse:
        path = await self._path(deadline)
        answer = await self._container.ask("POST", path, body, headers, seconds_until(deadline))
        await self._note(answer.status)
        return answer

    async def stream(
        self, body: bytes, headers: Mapping[str, str], deadline: float, held: AsyncExitStack
    ) -> StreamedResponse:
        """Its good answer as it comes; ``held`` ends with it. Raises ContainerFailed and UpstreamError."""
        path = await self._path(deadline)
        answer = await self._container.stream(path, body, headers, seconds_until(deadline))
        held.push_async_callback(self._note, answer.status)
        if answer.status not in SUCCESSES:
            found = b""
            async with aclosing(answer.parts):
                async for part in answer.parts:
                    found += part
                    if len(found) >= LONGEST_MESSAGE:
                        break
            raise ContainerFailed(self.name, HttpResponse(answer.status, found))
        return answer

    async def _path(self, deadline: float) -> str:
        if self._models is None:
            return INVOCATIONS.path
        return await self._models.path_for(self._target, self._log_stream, seconds_until(deadline))

    async def _note(self, status: int) -> None:
        if self._models is not None:
            await self._models.answered(self._target, status)


class Invocation:
    """A request with these ``members`` to ``instance``, whose time starts now. Raises AwsError."""

    def __init__(
        self, endpoint: str, instance: VariantInstance, members: Mapping[str, str], limits: InvocationLimits
    ) -> None:
        self._endpoint = endpoint
        self._instance = instance
        self._limits = limits
        hops = [
            ModelHop(container, models, target_of(models, members), self._log_stream(container.name))
            for container in _chosen_containers(instance, members)
            for models in (instance.many_models.get(container.name),)
        ]
        if "TargetModel" in members and not instance.many_models:
            raise refused("TargetModel can't be used here: it is for a container in MultiModel mode.")
        most = limits.answer_bytes
        self._passage = Passage(hops, container_headers(members), limits.seconds, most, answer_bytes=most)

    async def answer(self, body: bytes) -> HttpResponse:
        """The last container's answer. Raises AwsError."""
        with self._model_errors():
            return await self._passage.through(body)

    @asynccontextmanager
    async def streamed(self, body: bytes, held: AsyncExitStack) -> AsyncIterator[StreamedResponse]:
        """The beginning of the last container's answer, as it comes; ``held`` ends with it.

        Raises AwsError, also for what the block raises.
        """
        with self._model_errors():
            body, headers = await self._passage.before_last(body)
            with self._passage.noted(self._passage.last):
                yield await self._passage.last.stream(body, headers, self._passage.deadline, held)

    @contextmanager
    def _model_errors(self) -> Iterator[None]:
        """Turns a ContainerFailed in the block into an AwsError (ModelError)."""
        try:
            yield
        except ContainerFailed as failed:
            match failed.outcome:
                case HttpResponse(status=status, body=body) if status not in SUCCESSES:
                    text = body.decode(errors="replace")
                case HttpResponse(status=status, body=body):
                    text = f"The answer has {len(body)} bytes; the most is {self._limits.answer_bytes}."
                case UpstreamTimeout():
                    status, text = NO_ANSWER, TIMED_OUT
                case NotReached():
                    status = NO_ANSWER
                    text = "The container can't be reached."
                case AnswerTooLarge() as error:
                    status = NO_ANSWER
                    text = str(error)
                case _:
                    status = NO_ANSWER
                    text = "The connection to the container broke."
            log_stream = self._log_stream(failed.container)
            raise model_error(failed.container, status, text, log_stream) from failed

    def _log_stream(self, container: str) -> str:
        """The name that a container's log would have in CloudWatch."""
        suffix = "" if len(self._instance.containers) == 1 else f"/{container}"
        group = f"/aws/sagemaker/Endpoints/{self._endpoint}"
        return f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{group}:log-stream:{self._instance.name}{suffix}"


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
    instance = picked(endpoint, group, body)
    if group.variant.concurrency is not None:
        limits = replace(limits, answer_bytes=SERVERLESS_BYTES)
    with instance.answering():
        return await Invocation(endpoint.name, instance, members, limits).answer(body)


def picked(endpoint: HostedEndpoint, group: InstanceGroup, body: bytes) -> VariantInstance:
    """An instance for a request.

    Raises AwsError if none is in service (try again if one is starting), and over a serverless one's limits.
    """
    if group.variant.concurrency is not None:
        refuse_large(body, SERVERLESS_BYTES)
        if sum(each.outstanding for each in group.instances) >= group.variant.concurrency:
            raise AwsError("ThrottlingException", "Rate exceeded: MaxConcurrency requests are under way.")
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
