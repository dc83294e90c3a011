"""The methods of PredictionService on one servable, from message to message: for gRPC and warm-up."""

from tfs_proxy.embedded.core.describe import spec_of
from tfs_proxy.embedded.core.examples import ExampleRun
from tfs_proxy.embedded.core.predict import check_inputs, chosen_outputs, outputs_of, signature_of
from tfs_proxy.embedded.core.servable import DEFAULT_SIGNATURE, Array, LoadedServable, ServableSignature
from tfs_proxy.embedded.errors import invalid, shape_text, too_many_dimensions
from tfs_proxy.memory import RESERVED_FROM_BYTES, MemoryBudget
from tfs_proxy.protos import (
    ClassificationRequest,
    ClassificationResponse,
    PredictRequest,
    RegressionRequest,
    RegressionResponse,
    TensorProto,
)
from tfs_proxy.protos.predict import response_bytes
from tfs_proxy.protos.tensors import listed_bytes, to_array
from tfs_proxy.signature import CLASSIFY_METHOD, REGRESS_METHOD
from tfs_proxy.wire.data_types import data_type_name
from tfs_proxy.wire.dtypes import MAX_DIMENSIONS

_COPIES = 2
"""A tensor from a list of values stands beside what a model of the same shape answers."""


def predict(
    servable: LoadedServable, request: PredictRequest, budget: MemoryBudget, *, as_list: bool = True
) -> bytes:
    """A serialized PredictResponse; ``as_list`` as in `tensors.to_pieces`.

    Raises ServingError, and what the budget does.
    """
    signature = signature_of(servable, request.model_spec.signature_name)
    check_inputs(signature, request.inputs.keys())
    arrays = _arrays(signature, request, budget)
    aliases = chosen_outputs(signature, request.output_filter)
    computed = servable.computed(signature, aliases)
    outputs = outputs_of(servable.runner(signature, computed), computed, arrays)
    if computed is not aliases:
        outputs = {alias: outputs[alias] for alias in aliases}
    return response_bytes(servable.spec_bytes(signature.name), outputs, as_list=as_list)


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
            raise too_many_dimensions(alias, len(tensor.tensor_shape.dim))
        size_bytes = listed_bytes(tensor)
        if sent and size_bytes >= RESERVED_FROM_BYTES:
            budget.take(_COPIES * size_bytes, _declared(alias, tensor, size_bytes))
        try:
            arrays[alias] = to_array(tensor)
        except (ValueError, MemoryError) as error:
            raise invalid(f"tensor parsing error: {alias}") from error
    return arrays


def _declared(alias: str, tensor: TensorProto, size_bytes: int) -> str:
    """What a refusal says of a tensor."""
    shape = shape_text(dim.size for dim in tensor.tensor_shape.dim)
    return (
        f'The tensor "{alias}", declared as {data_type_name(tensor.dtype)} {shape} of {size_bytes:,} bytes,'
    )
