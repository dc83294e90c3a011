"""The model that a request names, compared with the whole message read by protobuf."""

from typing import Any

import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.values.errors import BadInput
from tfs_proxy.wire.protos import (
    ClassificationRequest,
    GetModelMetadataRequest,
    GetModelStatusRequest,
    ModelSpec,
    MultiInferenceRequest,
    PredictRequest,
    RegressionRequest,
)
from tfs_proxy.worker.router import forwarding as reader
from tfs_proxy.worker.router.forwarding import asked_model

REQUESTS: dict[str, type[Message]] = {
    "Predict": PredictRequest,
    "Classify": ClassificationRequest,
    "Regress": RegressionRequest,
    "GetModelMetadata": GetModelMetadataRequest,
    "GetModelStatus": GetModelStatusRequest,
    "MultiInference": MultiInferenceRequest,
}
NAMES = st.text(max_size=12)


@st.composite
def specs(draw: st.DrawFn) -> ModelSpec:
    """A ModelSpec with a name, or without, and perhaps a version or a label."""
    spec = ModelSpec(name=draw(NAMES), signature_name=draw(NAMES))
    match draw(st.sampled_from(["", "version", "label"])):
        case "version":
            spec.version.value = draw(st.integers(-(2**63), 2**63 - 1))
        case "label":
            spec.version_label = draw(NAMES)
    return spec


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, bytes]:
    """A method and the bytes of one or more requests of it, which protobuf merges."""
    method = draw(st.sampled_from(sorted(REQUESTS)))
    parts = []
    for spec in draw(st.lists(specs(), max_size=3)):
        request: Any = REQUESTS[method]()
        if method == "MultiInference":
            request.tasks.add(method_name="tensorflow/serving/classify").model_spec.CopyFrom(spec)
        else:
            request.model_spec.CopyFrom(spec)
        if method == "Predict":
            request.inputs["x"].tensor_content = draw(st.binary(max_size=20))
            request.output_filter.append("y")
        parts.append(request.SerializeToString())
    return method, b"".join(parts)


def parsed_specs(method: str, message: bytes) -> list[ModelSpec]:
    """The ModelSpecs of a request as protobuf reads it."""
    request: Any = REQUESTS[method].FromString(message)
    if method == "MultiInference":
        return [task.model_spec for task in request.tasks]
    return [request.model_spec] if request.HasField("model_spec") else []


def version_of(spec: ModelSpec) -> str:
    """The version or label that a spec names."""
    match spec.WhichOneof("version_choice"):
        case "version":
            return str(spec.version.value)
        case "version_label":
            return spec.version_label
        case _:
            return ""


@given(requests())
def test_it_reads_what_protobuf_reads(request: tuple[str, bytes]) -> None:
    """Name and version, or a refusal if the request does not name one model."""
    method, message = request
    specs = parsed_specs(method, message)
    if not specs or not all(spec.name for spec in specs) or len({spec.name for spec in specs}) > 1:
        with pytest.raises(BadInput):
            asked_model(method, message)
    else:
        asked = asked_model(method, message)
        assert asked.name == specs[0].name
        assert asked.version == version_of(specs[0])


@given(st.sampled_from(sorted(REQUESTS)), st.binary(max_size=60))
def test_any_bytes_give_a_name_or_a_refusal(method: str, message: bytes) -> None:
    """A name is one that protobuf reads, too, unless the bytes are broken further in."""
    try:
        asked = asked_model(method, message)
    except BadInput:
        return
    try:
        specs = parsed_specs(method, message)
    except DecodeError:
        return
    assert specs[0].name == asked.name


def test_tasks_of_several_models_are_refused() -> None:
    request = MultiInferenceRequest()
    for name in ("a", "b"):
        request.tasks.add().model_spec.name = name

    with pytest.raises(BadInput, match=reader.SEVERAL_MODELS):
        asked_model("MultiInference", request.SerializeToString())


@pytest.mark.parametrize(
    ("method", "message", "sentence"),
    [
        ("Predict", b"", reader.NO_SPEC),
        ("Predict", b"\x0a\x00", reader.NO_NAME),
        ("GetModelStatus", b"\x0a\x02\x0a\x01\xff", r"The request is not a message of GetModelStatus"),
        ("Predict", b"\x0a\x05a", "The request is not a message of Predict"),
        ("MultiInference", b"", reader.NO_NAME),
    ],
)
def test_what_names_no_model_is_refused_in_a_sentence(method: str, message: bytes, sentence: str) -> None:
    """Missing, empty or broken."""
    with pytest.raises(BadInput, match=sentence):
        asked_model(method, message)
