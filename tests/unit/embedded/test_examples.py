"""Classifications of the embedded server, over a model that is made up: it answers with its examples."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from support.rest_app import Passed
from tfs_proxy.embedded.core.catalog import Catalog, Model
from tfs_proxy.embedded.core.predict import classify
from tfs_proxy.embedded.core.servable import Array, LoadedServable
from tfs_proxy.embedded.rest.handlers import Classify
from tfs_proxy.embedded.rest.requests import Route
from tfs_proxy.values.errors import PayloadTooLarge
from tfs_proxy.values.memory import MemoryBudget
from tfs_proxy.values.signature import CLASSIFY_METHOD
from tfs_proxy.wire.data_types import DataType
from tfs_proxy.wire.protos import ClassificationRequest, Example, ModelSpec, SignatureDef, TensorInfo


class Labels(Passed):
    """A backend that answers with the bytes of each example's feature ``s``, as labels."""

    def answer(self, given: Mapping[str, Array], fetches: Sequence[str]) -> Sequence[Array]:
        (examples,) = given.values()
        rows = [
            list(Example.FromString(serialized).features.feature["s"].bytes_list.value)
            for serialized in examples
        ]
        return [np.array(rows, object)]


def servable() -> LoadedServable:
    """The model, as `m`."""
    made = SignatureDef(method_name=CLASSIFY_METHOD)
    made.inputs["inputs"].CopyFrom(TensorInfo(name="x:0", dtype=DataType.DT_STRING))  # type: ignore[arg-type]
    made.outputs["classes"].CopyFrom(TensorInfo(name="y:0", dtype=DataType.DT_STRING))  # type: ignore[arg-type]
    return LoadedServable("m", 1, {"serving_default": made}, Labels())


def test_labels_in_json_may_have_any_bytes() -> None:
    catalog = Catalog()
    catalog.models["m"] = Model()
    catalog.models["m"].publish({1: servable()})
    work = Classify(catalog, Route("classify", "m"))
    work.read(b'{"examples": [{"s": ["a", {"b64": "/w=="}]}]}', MemoryBudget())
    assert b'[["a", 0.0], ["\xff", 0.0]]' in work.answer()


def test_labels_in_messages_are_text() -> None:
    """What is none has its place taken: clients can't read a message with other bytes."""
    request = ClassificationRequest(model_spec=ModelSpec(name="m"))
    example = request.input.example_list.examples.add()
    example.features.feature["s"].bytes_list.value.extend([b"a", b"b\xff"])
    (answered,) = classify(servable(), request, MemoryBudget()).result.classifications
    assert [result.label for result in answered.classes] == ["a", "b\N{REPLACEMENT CHARACTER}"]


def test_a_context_is_not_copied_beyond_all_bounds() -> None:
    """It stands in front of each example: a large one times many examples is refused before."""
    request = ClassificationRequest()
    examples = request.input.example_list_with_context
    examples.context.features.feature["s"].bytes_list.value.append(b"s" * 1_000_000)
    for _ in range(1000):
        examples.examples.add()
    with pytest.raises(
        PayloadTooLarge, match=r"^The context, once for each example, needs .* and 400 MB are there"
    ):
        classify(servable(), request, MemoryBudget())
