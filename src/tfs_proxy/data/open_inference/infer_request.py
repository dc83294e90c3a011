"""Inference requests as values, checked against a signature: between the codecs and the data plane."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy.typing as npt
from msgspec import Struct, field

from tfs_proxy.data.open_inference.datatypes import Datatype, datatype_of
from tfs_proxy.data.shapes import PASSES, fits, is_possible, shape_text
from tfs_proxy.values.batch import Batch
from tfs_proxy.values.errors import BadInput, from_client
from tfs_proxy.values.signature import Signature, TensorSpec

Parameter = bool | int | float | str
Parameters = Mapping[str, Parameter]

SIGNATURE: Final = "signature"
"""Request parameter that chooses a signature other than the default one."""

BINARY_DATA: Final = "binary_data"
BINARY_DATA_OUTPUT: Final = "binary_data_output"
BINARY_DATA_SIZE: Final = "binary_data_size"
CLASSIFICATION: Final = "classification"
CONTENT_TYPE: Final = "content_type"

BASE64_TYPE: Final = "base64"
"""Content type of a tensor of BYTES whose strings in JSON are base64, as MLServer has it."""

TIMEOUT: Final = "timeout"
"""Request parameter with the microseconds that it may take; 0 is none."""

OF_THE_PROTOCOL: Final = frozenset({SIGNATURE, TIMEOUT, BINARY_DATA_OUTPUT})
"""Request parameters with a meaning here; all others are the client's own, and echoed."""


_SHOWN_CHARACTERS = 100


class InferInput(Struct, frozen=True):
    """Tensor of a request, whose array has the shape and the datatype that the client named."""

    name: str
    datatype: Datatype
    array: npt.NDArray[Any]


class RequestedOutput(Struct, frozen=True):
    """Output that a client asks for, as JSON or as raw bytes; strings in JSON may be base64."""

    name: str
    binary: bool
    as_base64: bool = False


class InferRequest(Struct, frozen=True):
    """Inference request, as the protocol's JSON has it."""

    inputs: Sequence[InferInput] = ()
    """Tensors of the request."""

    outputs: Sequence[RequestedOutput] = ()
    """Outputs that are wanted; none for all of them."""

    id: str = ""
    """Id of the client, which the answer repeats; "" without one."""

    parameters: Parameters = field(default_factory=dict)
    """Values of the request by name, ours and the client's own."""

    @property
    def signature(self) -> str | None:
        """Name of the signature that is asked for; raises BadInput if it is not a string."""
        name = self.parameters.get(SIGNATURE)
        if name is not None and not isinstance(name, str):
            raise BadInput(f'The parameter "{SIGNATURE}" must be a string.')
        return name

    @property
    def timeout_seconds(self) -> float | None:
        """Time that the request may take; raises BadInput if it is not a whole number of microseconds."""
        micros = self.parameters.get(TIMEOUT, 0)
        if type(micros) is not int or micros < 0:
            raise BadInput(f'The parameter "{TIMEOUT}" must be a whole number of microseconds.')
        return micros / 1e6 if micros else None

    @property
    def own_parameters(self) -> Parameters:
        """Parameters of the client's own, which are echoed."""
        return {name: value for name, value in self.parameters.items() if name not in OF_THE_PROTOCOL}

    def batch(self, signature: Signature) -> Batch:
        """Make the inputs for a model; raises BadInput naming the input that does not fit its signature."""
        given = {each.name: each for each in self.inputs}
        takes = _listed(tuple(signature.inputs))
        for name in (name for name in given if name not in signature.inputs):
            raise BadInput(f"{named('input', name)} is unknown: the model takes {takes}.")
        check_once(each.name for each in self.inputs)
        for name in (name for name in signature.inputs if name not in given):
            raise BadInput(f"{named('input', name)} is missing: the model takes {takes}.")
        for name, spec in signature.inputs.items():
            _check(given[name], spec)
        inputs = {name: given[name].array for name in signature.inputs}
        base64_form = f'with "parameters": {{"{CONTENT_TYPE}": "{BASE64_TYPE}"}}'
        return Batch(inputs, _records(inputs), base64_form=base64_form)

    def requested(self, names: Sequence[str]) -> Sequence[RequestedOutput]:
        """Outputs to answer with; raises BadInput for one that the model does not have."""
        for output in self.outputs:
            if output.name not in names:
                raise BadInput(
                    f"{named('output', output.name)} is unknown: the model gives {_listed(names)}."
                )
        if self.outputs:
            return self.outputs
        binary = self.parameters.get(BINARY_DATA_OUTPUT) is True
        return tuple(RequestedOutput(name, binary) for name in names)


def named(kind: str, name: str) -> str:
    """Input or output as the subject of a sentence."""
    return f'The {kind} "{from_client(name[:_SHOWN_CHARACTERS])}"'


def checked_shape(shape: object, subject: str) -> tuple[int, ...]:
    """Check a shape that a client names; raises BadInput if no array can have it."""
    if not isinstance(shape, (list, tuple)) or not all(type(size) is int and size >= 0 for size in shape):
        raise BadInput(f"{subject} needs a shape: a list of whole numbers that are not negative.")
    if not is_possible(shape):
        raise BadInput(f"{subject} has a shape that no tensor can have.")
    return tuple(shape)


def check_once(names: Iterable[str], kind: str = "input", verb: str = "comes") -> None:
    """Raise BadInput for an input, or another ``kind`` of tensor, that ``verb`` twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise BadInput(f"{named(kind, name)} {verb} twice.")
        seen.add(name)


def _check(given: InferInput, spec: TensorSpec) -> None:
    subject = named("input", given.name)
    wanted = datatype_of(spec)
    if wanted is None:
        raise BadInput(f"{subject} is {spec.dtype}, which this protocol does not carry.")
    if given.datatype is not wanted:
        raise BadInput(
            f"{subject} has the datatype {given.datatype.name}, but the model takes {wanted.name}."
        )
    if not fits(given.array.shape, spec.shape) and spec.shape is not None:
        raise BadInput(
            f"{subject} has the shape {list(given.array.shape)}, "
            f"but the model takes {shape_text(spec.shape)}.{PASSES}"
        )


def _records(inputs: Mapping[str, npt.NDArray[Any]]) -> int:
    return next((len(array) for array in inputs.values() if array.ndim), 1)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
