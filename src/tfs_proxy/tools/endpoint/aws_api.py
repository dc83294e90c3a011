"""AWS's two services from botocore's models: members, headers and errors of their operations."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import Any

import botocore.session
from botocore.model import ListShape, MapShape, OperationModel, ServiceModel, Shape, StructureShape
from botocore.validate import ParamValidator

from tfs_proxy.values.errors import RequestError
from tfs_proxy.wire.http_messages import HttpResponse, StreamedResponse
from tfs_proxy.wire.media_types import JSON

CONTROL_PLANE = "sagemaker"
RUNTIME = "sagemaker-runtime"
LOGS = "logs"
OURS = frozenset({"ModelDataUrl", "S3Uri", "S3OutputPath", "S3FailurePath", "InputLocation"})
"""Members that also take a path of this machine here."""

_JAVA_CLASSES = {r"\p{ASCII}": r"\x00-\x7f", r"\p{Print}": r"\x20-\x7e", r"\z": r"\Z"}


_TABLE = json.loads(files(__package__).joinpath("members.json").read_text())
"""Members that are acted on here, by AWS's name of a structure; those of which some values are; and those of
the account, the hardware and the observers, without effect on anything that a client gets."""

_ACTED_ON = _TABLE["acted on"]
_VALUES = _TABLE["values"]
_WITHOUT_EFFECT = set(_TABLE["without effect"])


@cache
def service_model(service: str) -> ServiceModel:
    return botocore.session.get_session().get_service_model(service)


@cache
def operation_model(service: str, operation: str) -> OperationModel:
    return service_model(service).operation_model(operation)


def problems(operation: str, request: Mapping[str, Any], service: str = CONTROL_PLANE) -> list[str]:
    """Reasons why a request is refused by AWS, or can't be tried here: a sentence each, with the member."""
    shape = operation_model(service, operation).input_shape
    assert shape is not None  # noqa: S101 - all of these operations take parameters
    report = ParamValidator().validate(request, shape)
    if report.has_errors():
        return str(report.generate_report()).splitlines()
    return list(_out_of_bounds(shape, request, "")) or list(_not_acted_on(shape, request))


def _not_acted_on(shape: Shape, value: Any, path: str = "") -> Iterator[str]:
    """A sentence for each member of a request that would be dropped; shapes without a row are not judged."""
    if isinstance(shape, ListShape):
        for place, part in enumerate(value):
            yield from _not_acted_on(shape.member, part, f"{path}[{place}]")
    elif isinstance(shape, StructureShape) and shape.name in _ACTED_ON:
        for name in sorted(value.keys() - _WITHOUT_EFFECT):
            inner = f"{path}.{name}" if path else name
            part = value[name]
            if name not in _ACTED_ON[shape.name]:
                yield f"{inner} is not supported here: leave it out to try the rest"
            elif part not in _VALUES.get(name, (part,)):
                yield f"{inner} {part} is not supported here: leave it out to try the rest"
            else:
                yield from _not_acted_on(shape.members[name], part, inner)


def _out_of_bounds(shape: Shape, value: Any, path: str) -> Iterator[str]:
    """Checks what botocore leaves to AWS: lengths, patterns and choices."""
    if isinstance(shape, StructureShape):
        for name, part in value.items():
            yield from _out_of_bounds(shape.members[name], part, f"{path}.{name}" if path else name)
    elif isinstance(shape, ListShape):
        yield from _too_long(shape, len(value), f"{path} has {len(value)} entries")
        for place, part in enumerate(value):
            yield from _out_of_bounds(shape.member, part, f"{path}[{place}]")
    elif isinstance(shape, MapShape):
        yield from _too_long(shape, len(value), f"{path} has {len(value)} entries")
        for name, part in value.items():
            yield from _out_of_bounds(shape.key, name, f"{path} (key {name})")
            yield from _out_of_bounds(shape.value, part, f"{path}.{name}")
    elif shape.type_name == "string":
        yield from _unusable_text(shape, value, path)
    elif shape.type_name in {"integer", "long", "float", "double"}:
        yield from _too_long(shape, value, f"{path} is {value}")


def _too_long(shape: Shape, size: float, found: str) -> Iterator[str]:
    most = shape.metadata.get("max")
    if most is not None and size > most:
        yield f"{found}; the most is {most}"


def _unusable_text(shape: Shape, text: str, path: str) -> Iterator[str]:
    yield from _too_long(shape, len(text), f"{path} has {len(text)} characters")
    choices = shape.metadata.get("enum")
    if choices and text not in choices:
        yield f"{path} is {text!r}, which is not one of AWS's {len(choices)} values: {_few(choices, text)}"
    pattern = shape.metadata.get("pattern")
    if pattern and path.rpartition(".")[2] not in OURS and not matches(pattern, text):
        yield f"{path} is {text!r}, which does not match {pattern}"


def _few(choices: list[str], text: str) -> str:
    alike = [choice for choice in choices if choice[:5] == text[:5]] or choices
    return ", ".join(alike[:8]) + (", ..." if len(alike) > len(alike[:8]) else "")


def matches(pattern: str, text: str) -> bool:
    """True if ``text`` matches AWS's pattern for Java, or if Python can't read that."""
    compiled = _compiled(pattern)
    return compiled is None or compiled.fullmatch(text) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str] | None:
    for java, python in _JAVA_CLASSES.items():
        pattern = pattern.replace(f"[{java}]", f"[{python}]")
        pattern = pattern.replace(java, python if java == r"\z" else f"[{python}]")
    try:
        return re.compile(pattern)
    except re.error:  # Unicode classes, in the patterns of tags
        return None


ERROR_TYPE = "x-amzn-ErrorType"
MODEL_ERROR = "ModelError"
NOT_READY = "ModelNotReadyException"
UNAVAILABLE = "ServiceUnavailable"
REFUSED = "ValidationError"
IN_USE = "ResourceInUse"
NOT_FOUND = "ResourceNotFound"
NO_ANSWER = 0
"""AWS's OriginalStatusCode for a container that gave no answer."""

LONGEST_MESSAGE = 2048
"""Characters of a container's own error that reach the client (docs/reference/sagemaker.md)."""

TOO_LARGE = "413"
"""AWS has no code for a body that is too large: botocore shows only the HTTP status."""


class AwsError(RequestError):
    """An answer that botocore raises as an exception of this ``code``, with further ``members``."""

    def __init__(self, code: str, message: str, **members: str | int) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.members = members


def model_error(container: str, status: int, message: str, log_stream: str) -> AwsError:
    """The ModelError for a container's ``status`` (`NO_ANSWER` if it has none) and message."""
    side = "client" if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR else "server"
    original = message[:LONGEST_MESSAGE]
    return AwsError(
        MODEL_ERROR,
        f'Received {side} error ({status}) from {container} with message "{original}".',
        OriginalStatusCode=status,
        OriginalMessage=original,
        LogStreamArn=log_stream,
    )


def refused(message: str) -> AwsError:
    return AwsError(REFUSED, message)


def original_answer(error: AwsError) -> HttpResponse | None:
    """The container's own answer in a ModelError; None if there was none."""
    status = int(error.members.get("OriginalStatusCode", NO_ANSWER))
    if error.code != MODEL_ERROR or status == NO_ANSWER:
        return None
    return HttpResponse(status, str(error.members["OriginalMessage"]).encode())


def answer_to(error: AwsError) -> HttpResponse:
    body = {"Message": error.message, **error.members}
    headers = {"Content-Type": JSON}
    if not error.code.isdecimal():
        headers[ERROR_TYPE] = error.code
    return HttpResponse(status_of(error.code), json.dumps(body).encode(), headers)


@cache
def status_of(code: str) -> int:
    """HTTP status of an error of `sagemaker-runtime`; 400 for those of the control plane."""
    if code.isdecimal():
        return int(code)
    errors = {shape.name: shape.metadata.get("error", {}) for shape in service_model(RUNTIME).error_shapes}
    return int(errors.get(code, {}).get("httpStatusCode", HTTPStatus.BAD_REQUEST))


INVOKE = "InvokeEndpoint"
_MOST_DIGITS = 9
_DROPPED = frozenset({"EnableExplanations", "InferenceComponentName", "PrefixAwareId"})
"""Members for explainers, components and routes that no endpoint here has."""


@cache
def _members(operation: str, direction: str) -> Mapping[str, Shape]:
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
    """Members given as headers; the names of ``headers`` are in lower case.

    Raises AwsError (ValidationError) for a value that AWS refuses, and for a member without effect here.
    """
    given: dict[str, str] = {}
    for member, shape in _members(operation, "in").items():
        value = headers.get(str(shape.serialization["name"]).lower())
        if value is None:
            continue
        if member in _DROPPED:
            raise refused(f"{member} is not supported here: leave it out to try the rest.")
        for problem in _problems(member, shape, value):
            raise refused(problem)
        given[member] = value
    return given


def _problems(member: str, shape: Shape, value: str) -> Iterator[str]:
    most = shape.metadata.get("max")
    least = shape.metadata.get("min", 0)
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
    known = _members(INVOKE, "in")
    return {
        str(known[member].serialization["name"]): value
        for member, value in members.items()
        if member in known
    }


def client_headers(operation: str, response: HttpResponse | StreamedResponse, variant: str) -> dict[str, str]:
    """Headers of the client's answer: those of the operation that the container sent, and the variant."""
    found = {
        member: response.header(header_name(INVOKE, "out", member)) for member in _members(INVOKE, "out")
    }
    found["InvokedProductionVariant"] = variant
    return {
        header_name(operation, "out", member): value
        for member in _members(operation, "out")
        if (value := found.get(member)) is not None
    }
