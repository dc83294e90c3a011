"""Classify, regress and multi-inference: tf.Examples in, classes and regressions out.

The graph gets its examples serialized, as one string tensor, whatever type the signature declares for
its input; its outputs are checked for the shape that the method promises. Texts are TF Serving's.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.embedded.core.catalog import spec_of
from tfs_proxy.embedded.core.servable import (
    DEFAULT_SIGNATURE,
    Array,
    LoadedServable,
    ServableSignature,
    Tensor,
)
from tfs_proxy.embedded.errors import ServingError, invalid, shape_text
from tfs_proxy.values.memory import MemoryBudget
from tfs_proxy.values.signature import CLASSIFY_METHOD, REGRESS_METHOD
from tfs_proxy.wire.data_types import DataType, data_type_name
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.protos import (
    ClassificationResult,
    Input,
    MultiInferenceRequest,
    MultiInferenceResponse,
    RegressionResult,
)
from tfs_proxy.wire.protos.tensors import data_type_of

_INPUTS = "inputs"
_CLASSES = "classes"
_SCORES = "scores"
_OUTPUTS = "outputs"
_MATRIX = 2

Named = Mapping[str, Array]
"""Fetched arrays by tensor name."""


class Plan(Struct, frozen=True):
    """Tensors that one method reads and fetches in a signature: an input, and output tensors by alias."""

    feed: Tensor
    fetches: Mapping[str, Tensor]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.fetches.values())


def signature_for(servable: LoadedServable, name: str, method: str) -> ServableSignature:
    """The signature that a classify or regress request names. Raises ServingError."""
    signature = servable.signatures.get(name or DEFAULT_SIGNATURE)
    if signature is None:
        raise invalid(f"No signature was found with the name: {name or DEFAULT_SIGNATURE}")
    if signature.checked and signature.message.method_name != method:
        kind = "classification" if method == CLASSIFY_METHOD else "regression"
        raise invalid(
            f"Expected {kind} signature method_name to be {method}. Was: {signature.message.method_name}"
        )
    return signature


def plan_for(signature: ServableSignature, method: str) -> Plan:
    """Plan of classify or regress with a signature. Raises ServingError if it lacks something."""
    if len(signature.inputs) != 1:
        raise invalid("Expected one input Tensor.")
    classifies = method == CLASSIFY_METHOD
    count = len(signature.outputs)
    if count != 1 and not (classifies and count == 2):  # noqa: PLR2004
        raise invalid(
            f"Expected one or two output Tensors, found {count}"
            if classifies
            else "Expected one output Tensor."
        )
    kind, aliases = ("classification", (_CLASSES, _SCORES)) if classifies else ("regression", (_OUTPUTS,))
    if _INPUTS not in signature.inputs:
        raise invalid(f"No {kind} inputs found in SignatureDef: {signature.message}")
    fetches = {alias: signature.outputs[alias] for alias in aliases if alias in signature.outputs}
    if not fetches and not classifies:
        raise invalid(f"No {kind} outputs found in SignatureDef: {signature.message}")
    if not fetches:
        raise invalid(
            f'Expected classification signature outputs to contain at least one of "{_CLASSES}" or '
            f'"{_SCORES}". Signature was: {signature.message}'
        )
    # The graph is fed strings; the placeholder itself may refuse them.
    return Plan(replace(signature.inputs[_INPUTS], data_type=DataType.DT_STRING), fetches)


def serialized(examples: Input, budget: MemoryBudget) -> Array:
    """The examples of an Input as a string tensor, its context put in front of each.

    Raises ServingError if there are none, and PayloadTooLarge if the copies of the context are too large.
    """
    if examples.WhichOneof("kind") == "example_list_with_context":
        listed = examples.example_list_with_context
        context = listed.context.SerializeToString()
        budget.take(len(context) * len(listed.examples), "The context, once for each example,")
        lines = [context + example.SerializeToString() for example in listed.examples]
    else:
        lines = [example.SerializeToString() for example in examples.example_list.examples]
    if not lines:
        raise invalid("Input is empty.")
    tensor = np.empty(len(lines), object)
    tensor[:] = lines
    return tensor


class ExampleRun:
    """A classify or regress of a servable on examples, ready to run. Raises ServingError."""

    def __init__(
        self, servable: LoadedServable, signature: str, method: str, examples: Input, budget: MemoryBudget
    ) -> None:
        self._plan = plan_for(signature_for(servable, signature, method), method)
        self._examples = serialized(examples, budget)
        api = "Classify" if method == CLASSIFY_METHOD else "Regress"
        self.runner = servable.tensor_runner([self._plan.feed], self._plan.names, api)

    def classes(self) -> list[list[tuple[bytes, float]]]:
        """Run it: labels and scores per example. Raises ServingError."""
        return classes(self._plan, self._outputs(), len(self._examples))

    def classification(self) -> ClassificationResult:
        """Run it: the same as a message. Raises ServingError."""
        return classification(self._plan, self._outputs(), len(self._examples))

    def regression(self) -> RegressionResult:
        """Run it: one number per example. Raises ServingError."""
        return regression(self._plan, self._outputs(), len(self._examples))

    def _outputs(self) -> Named:
        outputs = self.runner.run({self._plan.feed.alias: self._examples})
        return dict(zip(self._plan.names, outputs, strict=True))


def classes(plan: Plan, outputs: Named, count: int) -> list[list[tuple[bytes, float]]]:
    """Labels and scores per example. Raises ServingError if the tensors have other shapes."""
    labels = _checked(plan, outputs, _CLASSES, DataType.DT_STRING, count)
    scores = _checked(plan, outputs, _SCORES, DataType.DT_FLOAT, count)
    if labels is not None and scores is not None and labels.shape[1] != scores.shape[1]:
        raise invalid(
            "Tensors class and score should match in dim_size(1). "
            f"Got {labels.shape[1]} vs. {scores.shape[1]}"
        )
    return [_pairs(labels, scores, row) for row in range(count)]


def classification(plan: Plan, outputs: Named, count: int) -> ClassificationResult:
    """The same as a message, whose labels are text: other bytes would make it unreadable for clients."""
    result = ClassificationResult()
    for pairs in classes(plan, outputs, count):
        line = result.classifications.add()
        for label, score in pairs:
            line.classes.add(label=label.decode("utf-8", "replace"), score=score)
    return result


def regression(plan: Plan, outputs: Named, count: int) -> RegressionResult:
    """One number per example. Raises ServingError if the tensor has another shape."""
    values = outputs[plan.fetches[_OUTPUTS].name]
    if values.ndim != 1 and not (values.ndim == _MATRIX and values.shape[1] == 1):
        raise invalid(
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got "
            f"{shape_text(values.shape)}"
        )
    if values.shape[0] != count:
        raise invalid(f"Input batch size did not match output batch size: {count} vs. {values.shape[0]}")
    if data_type_of(values) != DataType.DT_FLOAT:
        raise invalid(f"Expected output Tensor of DT_FLOAT.  Got: {data_type_name(data_type_of(values))}")
    result = RegressionResult()
    for value in values.ravel().tolist():
        result.regressions.add(value=value)
    return result


def multi_inference(
    servable: LoadedServable, request: MultiInferenceRequest, budget: MemoryBudget
) -> MultiInferenceResponse:
    """Several signatures on the same examples in one run. Raises ServingError, and what the budget does."""
    plans: list[Plan] = []
    seen: set[str] = set()
    for task in request.tasks:
        if not task.model_spec.name:
            raise invalid("Found ModelSpec with an empty model name.")
        if task.model_spec.name != request.tasks[0].model_spec.name:
            raise invalid("All ModelSpecs in a MultiInferenceRequest must access the same model name.")
        name = task.model_spec.signature_name or DEFAULT_SIGNATURE
        if name in seen:
            raise invalid(f"Duplicate evaluation of signature: {name}")
        seen.add(name)
        if name not in servable.signatures:
            raise invalid(f"Requested signature not found in model graph: {name}")
        if task.method_name not in {CLASSIFY_METHOD, REGRESS_METHOD}:
            raise ServingError(
                GrpcCode.UNIMPLEMENTED, f"Unsupported signature method_name: {task.method_name}"
            )
        signature = signature_for(servable, name, task.method_name)
        plans.append(plan_for(signature, task.method_name))
    examples = serialized(request.input, budget)
    outputs = _run_together(servable, plans, examples)
    answer = MultiInferenceResponse()
    for task, plan in zip(request.tasks, plans, strict=True):
        result = answer.results.add()
        result.model_spec.CopyFrom(spec_of(servable, task.model_spec.signature_name or DEFAULT_SIGNATURE))
        if task.method_name == CLASSIFY_METHOD:
            result.classification_result.CopyFrom(classification(plan, outputs, len(examples)))
        else:
            result.regression_result.CopyFrom(regression(plan, outputs, len(examples)))
    return answer


def _run_together(servable: LoadedServable, plans: Sequence[Plan], examples: Array) -> Named:
    """Fetches all plans in one run: each signature's own placeholder gets the same examples."""
    feeds = {plan.feed.name: plan.feed for plan in plans}
    fetches = tuple(sorted({name for plan in plans for name in plan.names}))
    runner = servable.tensor_runner([feeds[name] for name in sorted(feeds)], fetches, "MultiInference")
    outputs = runner.run({feed.alias: examples for feed in feeds.values()})
    return dict(zip(fetches, outputs, strict=True))


def _checked(plan: Plan, outputs: Named, alias: str, data_type: int, count: int) -> Array | None:
    tensor = plan.fetches.get(alias)
    if tensor is None:
        return None
    array = outputs[tensor.name]
    if array.ndim != _MATRIX:
        raise invalid(f"Expected Tensor shape: [batch_size num_classes] but got {shape_text(array.shape)}")
    if data_type_of(array) != data_type:
        raise invalid(
            f"Expected {alias} Tensor of {data_type_name(data_type)}. "
            f"Got: {data_type_name(data_type_of(array))}"
        )
    if array.shape[0] != count:
        raise invalid(f"Expected {alias} output batch size of {count}. Got: {array.shape[0]}")
    return array


def _pairs(labels: Array | None, scores: Array | None, row: int) -> list[tuple[bytes, float]]:
    if labels is None:
        return [(b"", score) for score in scores[row].tolist()] if scores is not None else []
    if scores is None:
        return [(label, 0.0) for label in labels[row].tolist()]
    return list(zip(labels[row].tolist(), scores[row].tolist(), strict=True))
