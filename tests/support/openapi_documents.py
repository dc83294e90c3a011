"""Documents of made-up models, for unit tests: signatures of all kinds, and what a document says of /invocations."""

import json
from collections.abc import Mapping
from typing import Any

from tfs_proxy.model.graph_inputs import GraphInputs
from tfs_proxy.model.openapi.bodies import DescribedModel, Service
from tfs_proxy.model.openapi.document import document_text
from tfs_proxy.values.signature import CLASSIFY_METHOD, PREDICT_METHOD, Signature, TensorSpec


def signature(
    inputs: Mapping[str, tuple[str, tuple[int | None, ...] | None]],
    outputs: Mapping[str, tuple[str, tuple[int | None, ...] | None]],
    name: str = "serving_default",
    method: str = PREDICT_METHOD,
) -> Signature:
    """A signature of type and shape by alias."""
    ins, outs = (
        {alias: TensorSpec(alias, dtype, shape) for alias, (dtype, shape) in specs.items()}
        for specs in (inputs, outputs)
    )
    return Signature(name, method, ins, outs)


Y = {"y": ("DT_FLOAT", (None,))}
NUMBERS = signature({"x": ("DT_FLOAT", (None, 3))}, Y)
TEXT = signature({"text": ("DT_STRING", (None,))}, Y)
MIXED = signature(
    {"a": ("DT_INT64", (None,)), "b": ("DT_STRING", (None, 2)), "c": ("DT_BOOL", (None, 1, 2))},
    {"y": ("DT_HALF", (None,)), "z": ("DT_STRING", (None, 1))},
)
SCALAR = signature({"x": ("DT_FLOAT", ())}, {"y": ("DT_FLOAT", ())})
NO_RANK = signature({"x": ("DT_DOUBLE", None)}, {"y": ("DT_DOUBLE", None)})
COMPLEX = signature({"x": ("DT_COMPLEX64", (None,))}, {"y": ("DT_COMPLEX64", (None,))})
HALF = signature({"x": ("DT_BFLOAT16", (None,))}, {"y": ("DT_UINT8", (None,))})
QUANTIZED = signature({"x": ("DT_QINT8", (None,))}, Y)
NOTHING = signature({}, Y)
CLASSIFY = signature({"inputs": ("DT_STRING", (None,))}, Y, "labels", CLASSIFY_METHOD)
ALL = {
    "numbers": NUMBERS,
    "text": TEXT,
    "mixed": MIXED,
    "scalar": SCALAR,
    "no rank": NO_RANK,
    "complex": COMPLEX,
    "half": HALF,
    "quantized": QUANTIZED,
    "nothing": NOTHING,
}


def document(*signatures: Signature, **more: Any) -> dict[str, Any]:
    """The document of a model with these signatures, all protocols published, as a client parses it."""
    graph = more.pop("graph", GraphInputs())
    model = DescribedModel("m", (1, 20), {each.name: each for each in signatures}, graph=graph)
    service = Service((model,), "m", **{"rest_api": True, "open_inference": "model", **more})
    parsed: dict[str, Any] = json.loads(document_text(service))
    return parsed


def request_types(described: Mapping[str, Any]) -> dict[str, Any]:
    """The Media Type Objects of requests to /invocations."""
    found: dict[str, Any] = described["paths"]["/invocations"]["post"]["requestBody"]["content"]
    return found


def answer_types(described: Mapping[str, Any]) -> dict[str, Any]:
    """The Media Type Objects of answers of /invocations."""
    found: dict[str, Any] = described["paths"]["/invocations"]["post"]["responses"]["200"]["content"]
    return found
