"""Checks requests by AWS's own description of its API, which botocore carries; for `operations` and `api`."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import botocore.session
from botocore.model import ListShape, MapShape, OperationModel, ServiceModel, Shape, StructureShape
from botocore.validate import ParamValidator

CONTROL_PLANE, RUNTIME = "sagemaker", "sagemaker-runtime"
OURS = frozenset(
    {"ModelDataUrl", "S3Uri", "S3OutputPath", "S3FailurePath", "DestinationS3Uri", "InputLocation"}
)
"""Members that take a path of this machine here, besides what AWS takes."""

_JAVA_CLASSES = {r"\p{ASCII}": r"\x00-\x7f", r"\p{Print}": r"\x20-\x7e", r"\z": r"\Z"}


@cache
def service_model(service: str) -> ServiceModel:
    """What botocore knows of one of AWS's services."""
    return botocore.session.get_session().get_service_model(service)


@cache
def operation_model(service: str, operation: str) -> OperationModel:
    """What botocore knows of one operation."""
    return service_model(service).operation_model(operation)


def problems(operation: str, request: Mapping[str, Any]) -> list[str]:
    """Why AWS would refuse a request to the control plane: a sentence each, with the member's name."""
    shape = operation_model(CONTROL_PLANE, operation).input_shape
    assert shape is not None  # noqa: S101 - all of these operations take parameters
    report = ParamValidator().validate(request, shape)
    if report.has_errors():
        return str(report.generate_report()).splitlines()
    return list(_out_of_bounds(shape, request, ""))


def _out_of_bounds(shape: Shape, value: Any, path: str) -> Iterator[str]:
    """What botocore leaves to AWS: lengths, patterns and choices."""
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
    """The choices, or of many those that begin like the text."""
    alike = [choice for choice in choices if choice[:5] == text[:5]] or choices
    return ", ".join(alike[:8]) + (", ..." if len(alike) > len(alike[:8]) else "")


def matches(pattern: str, text: str) -> bool:
    """Whether a text matches a pattern of AWS's, written for Java; True if Python can't read that."""
    compiled = _compiled(pattern)
    return compiled is None or compiled.fullmatch(text) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str] | None:
    for java, python in _JAVA_CLASSES.items():
        pattern = pattern.replace(f"[{java}]", f"[{python}]")
        pattern = pattern.replace(java, python if java == r"\z" else f"[{python}]")
    try:
        return re.compile(pattern)
    except re.error:  # classes of Unicode, in the patterns of tags
        return None
