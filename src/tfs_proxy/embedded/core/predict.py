"""Predict on a servable, between the servers and TensorFlow: what REST and gRPC share."""

from collections.abc import Collection, Mapping, Sequence

from tfs_proxy.embedded.core.catalog import spec_of
from tfs_proxy.embedded.core.examples import ExampleRun
from tfs_proxy.embedded.core.servable import (
    DEFAULT_SIGNATURE,
    Array,
    LoadedServable,
    Runner,
    ServableSignature,
)
from tfs_proxy.embedded.errors import ServingError, invalid, shape_text, too_many_dimensions
from tfs_proxy.values.memory import RESERVED_FROM_BYTES, MemoryBudget
from tfs_proxy.values.signature import CLASSIFY_METHOD, REGRESS_METHOD
from tfs_proxy.wire.data_types import data_type_name
from tfs_proxy.wire.dtypes import MAX_DIMENSIONS
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.protos import (
    ClassificationRequest,
    ClassificationResponse,
    PredictRequest,
    RegressionRequest,
    RegressionResponse,
    TensorProto,
)
from tfs_proxy.wire.protos.predict import response_bytes
from tfs_proxy.wire.protos.tensors import listed_bytes, to_array


def signature_of(servable: LoadedServable, name: str) -> ServableSignature:
    """A signature by name, "" for the default one. Raises ServingError as predict does."""
    signature = servable.signatures.get(name or DEFAULT_SIGNATURE)
    if signature is None:
        raise ServingError(
            GrpcCode.FAILED_PRECONDITION, f'Serving signature key "{name or DEFAULT_SIGNATURE}" not found.'
        )
    check_method(signature)
    return signature


def check_method(signature: ServableSignature) -> None:
    """Raises ServingError (INTERNAL, as TF Serving) if methods are checked and this one is unknown."""
    if signature.unfit:
        raise ServingError(GrpcCode.INTERNAL, signature.unfit)


def check_inputs(signature: ServableSignature, names: Collection[str]) -> None:
    """Raises ServingError unless these names are the signature's, defaults counted in."""
    wanted = signature.inputs.keys()
    sent = set(names)
    if sent == wanted:
        return
    defaults = signature.message.defaults.keys()
    if len(sent) > len(wanted) or (len(sent) < len(wanted) and not defaults):
        raise invalid(
            f"input size does not match signature: {len(sent)}!={len(wanted)} "
            f"len({_set(sent)}) != len({_set(wanted)}). Sent extra: {_set(sent - wanted)}. "
            f"Missing but required: {_set(wanted - sent)}."
        )
    for alias in sorted(wanted - sent - defaults):
        raise invalid(
            f"Signature input alias: {alias}(feed name: {signature.inputs[alias].name}) not found in request "
            f"and no default value provided. Inputs expected to be in the request {_set(sent)}, "
            f"or default input alias set: {','.join(sorted(defaults))}"
        )
    if sent - wanted:
        raise invalid(
            f"Inputs contains invalid name. Used request inputs: {','.join(sorted(sent & wanted))}, "
            f"request input: {','.join(sorted(sent))}"
        )


def with_defaults(signature: ServableSignature, arrays: Mapping[str, Array]) -> Mapping[str, Array]:
    """The given arrays, and the signature's defaults for inputs that are not among them.

    Raises ServingError as `check_inputs` does.
    """
    if arrays.keys() == signature.inputs.keys():
        return arrays
    check_inputs(signature, arrays.keys())
    defaults = {alias: to_array(tensor) for alias, tensor in signature.message.defaults.items()}
    return {**defaults, **arrays}


def outputs_of(runner: Runner, aliases: Sequence[str], arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Run, and name what comes out. Raises ServingError."""
    return dict(zip(aliases, runner.run(arrays), strict=True))


def _set(names: Collection[str]) -> str:
    return "{" + ",".join(sorted(names)) + "}"


_COPIES = 2
"""A tensor from a list of values stands next to the answer of a model of the same shape."""


def predict(servable: LoadedServable, request: PredictRequest, budget: MemoryBudget) -> bytes:
    """A serialized PredictResponse. Raises ServingError, and what the budget does."""
    signature = signature_of(servable, request.model_spec.signature_name)
    check_inputs(signature, request.inputs.keys())
    arrays = _arrays(signature, request, budget)
    seen = set()
    for alias in request.output_filter:
        if alias not in signature.outputs:
            raise invalid(
                f"output tensor alias not found in signature: {alias} Outputs expected to be in the set "
                f"{_set(signature.outputs)}."
            )
        if alias in seen:
            raise invalid(f"duplicate output tensor alias: {alias}")
        seen.add(alias)
    aliases = tuple(sorted(seen)) or signature.aliases
    computed = servable.computed(signature, aliases)
    outputs = outputs_of(servable.runner(signature, computed), computed, arrays)
    if computed is not aliases:
        outputs = {alias: outputs[alias] for alias in aliases}
    return response_bytes(servable.spec_bytes(signature.name), outputs)


def classify(
    servable: LoadedServable, request: ClassificationRequest, budget: MemoryBudget
) -> ClassificationResponse:
    """Labels and scores of a request's examples. Raises ServingError, and what the budget does."""
    name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    result = ExampleRun(servable, name, CLASSIFY_METHOD, request.input, budget).classification()
    return ClassificationResponse(model_spec=spec_of(servable, name), result=result)


def regress(servable: LoadedServable, request: RegressionRequest, budget: MemoryBudget) -> RegressionResponse:
    """One number for each of a request's examples. Raises ServingError, and what the budget does."""
    name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    result = ExampleRun(servable, name, REGRESS_METHOD, request.input, budget).regression()
    return RegressionResponse(model_spec=spec_of(servable, name), result=result)


def _arrays(signature: ServableSignature, request: PredictRequest, budget: MemoryBudget) -> dict[str, Array]:
    """The signature's inputs as arrays, defaults if the request has none."""
    arrays = {}
    for alias in signature.inputs:
        sent = alias in request.inputs
        tensor = request.inputs[alias] if sent else signature.message.defaults[alias]
        if len(tensor.tensor_shape.dim) > MAX_DIMENSIONS:
            raise too_many_dimensions(f'The tensor "{alias}"', len(tensor.tensor_shape.dim))
        size_bytes = listed_bytes(tensor)
        if sent and size_bytes >= RESERVED_FROM_BYTES:
            budget.take(_COPIES * size_bytes, _declared(alias, tensor, size_bytes))
        try:
            arrays[alias] = to_array(tensor)
        except (ValueError, MemoryError) as error:
            raise invalid(f"tensor parsing error: {alias}") from error
    return arrays


def _declared(alias: str, tensor: TensorProto, size_bytes: int) -> str:
    shape = shape_text(dim.size for dim in tensor.tensor_shape.dim)
    return (
        f'The tensor "{alias}", declared as {data_type_name(tensor.dtype)} {shape} of {size_bytes:,} bytes,'
    )
