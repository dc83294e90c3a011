"""The headers that go through an endpoint, both ways: those of AWS's own description, and no others."""

from collections.abc import Iterator, Mapping
from functools import cache

from botocore.model import Shape, StructureShape

from tfs_proxy.endpoint.calls.errors import refused
from tfs_proxy.endpoint.description.service_model import OURS, RUNTIME, matches, operation_model
from tfs_proxy.wire.http_messages import HttpResponse, StreamedResponse

INVOKE = "InvokeEndpoint"
_MOST_DIGITS = 9


@cache
def _members(operation: str, direction: str) -> Mapping[str, Shape]:
    """The members of an operation that are headers, by name."""
    model = operation_model(RUNTIME, operation)
    shape = model.input_shape if direction == "in" else model.output_shape
    if not isinstance(shape, StructureShape):
        return {}
    return {
        name: member
        for name, member in shape.members.items()
        if member.serialization.get("location") == "header"
    }


def header_name(operation: str, direction: str, member: str) -> str:
    """The header of a member of a request (``in``) or an answer (``out``)."""
    return str(_members(operation, direction)[member].serialization["name"])


def given_members(operation: str, headers: Mapping[str, str]) -> dict[str, str]:
    """What a request's headers say, by member; the names of ``headers`` are in lower case.

    Raises AwsError (ValidationError) for a value that AWS refuses.
    """
    given: dict[str, str] = {}
    for member, shape in _members(operation, "in").items():
        value = headers.get(str(shape.serialization["name"]).lower())
        if value is None:
            continue
        for problem in _problems(member, shape, value):
            raise refused(problem)
        given[member] = value
    return given


def _problems(member: str, shape: Shape, value: str) -> Iterator[str]:
    most, least = shape.metadata.get("max"), shape.metadata.get("min", 0)
    if shape.type_name != "string":
        if not value.isdecimal() or len(value) > _MOST_DIGITS:
            yield f"{member} must be a number."
        elif most is not None and not least <= int(value) <= most:
            yield f"{member} is {value}; {least} to {most} are allowed."
        return
    if most is not None and not least <= len(value) <= most:
        yield f"{member} has {len(value)} characters; {least} to {most} are allowed."
    pattern = shape.metadata.get("pattern")
    if pattern is not None and member not in OURS and not matches(pattern, value):
        yield f"{member} does not match {pattern}."


def container_headers(members: Mapping[str, str]) -> dict[str, str]:
    """The headers of the container's request, whichever operation had these members."""
    known = _members(INVOKE, "in")
    return {
        str(known[member].serialization["name"]): value
        for member, value in members.items()
        if member in known
    }


def client_headers(operation: str, response: HttpResponse | StreamedResponse, variant: str) -> dict[str, str]:
    """The headers of the client's answer: what the operation has of the container's, and the variant."""
    found = {
        member: response.header(header_name(INVOKE, "out", member)) for member in _members(INVOKE, "out")
    }
    found["InvokedProductionVariant"] = variant
    return {
        header_name(operation, "out", member): value
        for member in _members(operation, "out")
        if (value := found.get(member)) is not None
    }
