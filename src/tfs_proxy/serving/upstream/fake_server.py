"""Fake model server in memory that answers by signatures alone: for `tfs_proxy.testing` and ``check``."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from tfs_proxy.data.formats.outputs import json_of_outputs
from tfs_proxy.data.serving_json.documents import documents, dumps
from tfs_proxy.data.serving_json.requests import COLUMN, PREDICT, decode_serving_form, serving_form, targeted
from tfs_proxy.data.shapes import misfits
from tfs_proxy.serving.upstream.interface import JSON_HEADERS, CallOptions, ModelAnswer, Records
from tfs_proxy.serving.upstream.rest import signature_of
from tfs_proxy.values.batch import BYTES, Batch, Examples, Outputs
from tfs_proxy.values.deployment import Instance
from tfs_proxy.values.errors import BadInput, UpstreamRefused
from tfs_proxy.values.signature import Signature, Target, TensorSpec
from tfs_proxy.wire.dtypes import dtype_of
from tfs_proxy.wire.error_body import error_body

Versions = Mapping[int, Mapping[str, Signature]]
"""Signatures by name, of each version of a model."""

FakeOutputs = Mapping[str, Any] | Callable[[dict[str, npt.NDArray[Any]]], Mapping[str, Any]] | None
"""Outputs by name, or a function that makes them of arrays by input name; None means zeros."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """Call of a `FakeModelServer`: the target, and arrays by input name (features: none)."""

    target: Target
    inputs: Mapping[str, npt.NDArray[Any]]


@dataclass
class ArraysAnswer(ModelAnswer):
    """Answer with tensors, and their JSON."""

    arrays: Outputs = field(default_factory=dict)

    def outputs(self, signature: Signature) -> Outputs:  # noqa: ARG002
        return self.arrays


class FakeModelServer:
    """`serving.upstream.interface.Upstream` for ``models``, by the signatures of their versions.

    It refuses what a model server would: unknown models and signatures, missing inputs, other dtypes than
    the signature's, and other shapes if the signature declares a size. Else it answers ``outputs``, or
    zeros of the signature's shapes, one for each record. ``calls`` has all calls.
    """

    def __init__(self, models: Mapping[str, Versions], outputs: FakeOutputs = None) -> None:
        self.models = models
        self.outputs = outputs
        self.calls: list[ModelCall] = []

    def choose(self) -> Instance:
        """Return the only instance; nothing listens at its ports."""
        return Instance(0, 8501, 8500, "")

    def signature(self, target: Target) -> Signature:
        """Signature of the target; raises UpstreamRefused for a model that isn't there, and BadInput."""
        return signature_of(self.signatures_of(target), target)

    def signatures_of(self, target: Target) -> Mapping[str, Signature]:
        """Signatures of the target's version; raises UpstreamRefused for a model that isn't there."""
        versions = self.models.get(target.model)
        if not versions or (target.version is not None and target.version not in versions):
            raise UpstreamRefused(404, error_body(f"Could not find any versions of model {target.model}"))
        return versions[max(versions) if target.version is None else target.version]

    def predict(
        self,
        target: Target,
        records: Records,
        **_options: Unpack[CallOptions],
    ) -> ModelAnswer:
        """Answer records; TF Serving's JSON in row or in column form, as it was asked."""
        try:
            if isinstance(records, bytes):
                return self._answer_json(target, records)
            return self._answer(target, records)
        except UpstreamRefused as refused:
            return ModelAnswer.refused(refused)
        except BadInput as error:
            return ModelAnswer(400, error_body(str(error)), JSON_HEADERS)

    def close(self) -> None:
        """Do nothing."""

    def _answer_json(self, target: Target, body: bytes) -> ModelAnswer:
        form = serving_form(documents(body), target.method)
        if form is None:
            raise BadInput("JSON has neither instances, inputs nor examples")
        target = targeted(target, body)
        if target.method != PREDICT:
            return self._answer(target, Examples(form["examples"]))
        answer = self._answer(target, decode_serving_form(form, self.signature(target)))
        if COLUMN not in form or not isinstance(answer, ArraysAnswer):
            return answer
        return ModelAnswer(HTTPStatus.OK, _columns(answer.arrays), JSON_HEADERS)

    def _answer(self, target: Target, batch: Batch | Examples) -> ModelAnswer:
        signature = self.signature(target)
        if isinstance(batch, Examples):
            self.calls.append(ModelCall(target, {}))
            one: Any = 0.0 if target.method == "regress" else [["", 0.0]]
            return ModelAnswer(HTTPStatus.OK, dumps({"results": [one] * batch.records}), JSON_HEADERS)
        for name, spec in signature.inputs.items():
            array = batch.inputs.get(name)
            if array is None:
                raise BadInput(f'The input "{name}" is missing.')
            if array.dtype != dtype_of(spec)[1]:
                raise BadInput(f'The input "{name}" is {array.dtype}, expected {spec.dtype}.')
        odd = misfits(batch.inputs, signature)
        # A model server does not compare shapes. A graph may take any, but seldom if it is made for a size.
        if any(size is not None for name in odd for size in signature.inputs[name].shape or ()):
            raise BadInput(" ".join(odd.values()))
        self.calls.append(ModelCall(target, dict(batch.inputs)))
        arrays = self._outputs(batch, signature)
        return ArraysAnswer(HTTPStatus.OK, json_of_outputs(arrays), JSON_HEADERS, arrays=arrays)

    def _outputs(self, batch: Batch, signature: Signature) -> Outputs:
        if self.outputs is None:
            return {name: _zeros(spec, batch.records) for name, spec in signature.outputs.items()}
        arrays = self.outputs(dict(batch.inputs)) if callable(self.outputs) else self.outputs
        if arrays.keys() != signature.outputs.keys():
            named = ", ".join(sorted(arrays))
            wanted = ", ".join(signature.outputs)
            raise ValueError(f"the outputs passed are {named or 'none'}, but {signature.name} has {wanted}")
        return {name: _typed(arrays[name], spec) for name, spec in signature.outputs.items()}


def _zeros(spec: TensorSpec, records: int) -> npt.NDArray[Any]:
    """Zeros, or empty strings: unknown sizes are 1, that of the first axis the number of records."""
    sizes = (None,) if spec.shape is None else spec.shape
    unknown = (records, *[1] * len(sizes))
    shape = tuple(unknown[axis] if size is None else size for axis, size in enumerate(sizes))
    dtype = dtype_of(spec)[1]
    return np.full(shape, b"", BYTES) if dtype == BYTES else np.zeros(shape, dtype)


def _typed(value: Any, spec: TensorSpec) -> npt.NDArray[Any]:
    dtype = dtype_of(spec)[1]
    if dtype != BYTES:
        return np.asarray(value, dtype)
    texts = np.asarray(value, BYTES)
    strings = [text.encode() if isinstance(text, str) else text for text in texts.ravel().tolist()]
    return np.array(strings, BYTES).reshape(texts.shape)


def _columns(arrays: Outputs) -> bytes:
    """Column form of a single record's or of several records' outputs."""
    by_name = json.loads(json_of_outputs(arrays))
    if "outputs" in by_name:
        return dumps(by_name)
    rows = by_name["predictions"]
    bare = len(arrays) == 1
    return dumps({"outputs": rows if bare else {name: [row[name] for row in rows] for name in arrays}})
