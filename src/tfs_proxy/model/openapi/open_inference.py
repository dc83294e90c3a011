"""Paths of the Open Inference Protocol below ``/v2``, for each model."""

from typing import Any

from tfs_proxy.data.open_inference.datatypes import datatype_of
from tfs_proxy.model.openapi.components import (
    ANYTHING,
    CONVERTED,
    EVERYWHERE,
    answer,
    answered_by_script,
    content_of,
    errors,
    of_request,
    path_parameter,
    static_answer,
    static_paths,
)
from tfs_proxy.model.openapi.examples import infer_examples, sample_string
from tfs_proxy.model.openapi.service import DescribedModel, Service
from tfs_proxy.model.openapi.serving_api import BY_VERSION, name_parameters, operation_id
from tfs_proxy.model.openapi.tensors import NESTED, Schema
from tfs_proxy.values.names import LABEL
from tfs_proxy.values.signature import Signature, TensorSpec
from tfs_proxy.wire import media_types as media
from tfs_proxy.wire.header_names import INFERENCE_HEADER_LENGTH

Paths = dict[str, Any]

TAGS = ["Open Inference Protocol"]
BY_SCRIPT = "script"


def open_inference_paths(service: Service) -> Paths:
    """Paths of the models and of the server; a script model has one version."""
    paths = static_paths("open_inference")
    by_script = service.open_inference == BY_SCRIPT
    of_script = (DescribedModel(service.default_model, (1,), {}),) if service.default_model else ()
    for model in service.models or of_script:
        for suffix in ("", BY_VERSION):
            path = f"/v2/models/{model.path_name}{suffix}"
            paths |= _of_model(path, model, suffix, by_script=by_script)
    return paths


def _of_model(path: str, model: DescribedModel, suffix: str, *, by_script: bool) -> Paths:
    shown: dict[str, tuple[str, str, dict[str, Any]]] = {
        "": ("modelMetadata", "Inputs and outputs", static_answer("model_metadata")),
        "/ready": ("modelReady", "Readiness of the model", static_answer("model_ready")),
    }
    paths: Paths = {}
    for ending, (verb, summary, content) in shown.items():
        operation = _get(operation_id(verb, model, suffix), f"{summary}: {model.name}", content)
        operation["parameters"] = _parameters(suffix, model)
        paths[path + ending] = {"get": operation}
    infer = _infer(model, suffix)
    paths[f"{path}/infer"] = {"post": _of_script(infer) if by_script else infer}
    return paths


def _parameters(suffix: str, model: DescribedModel) -> list[Any]:
    """Path parameters; a label may take the place of a version."""
    known = (*model.labels, *model.versions) if model.versions else ()
    version = [path_parameter("version", LABEL, known)] if suffix == BY_VERSION else []
    return [*name_parameters(model), *version, *of_request()]


def _get(operation: str, summary: str, content: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": operation,
        "summary": summary,
        "tags": TAGS,
        "parameters": of_request(),
        "responses": {"200": answer(summary + ".", content), **errors((*EVERYWHERE, 406, 411, 415, 501))},
    }


def _infer(model: DescribedModel, suffix: str) -> dict[str, Any]:
    signature = model.default_signature
    schemas: dict[str, Schema] = {media.JSON: _request(signature), media.BYTES: {}}
    string = None if signature is None else sample_string(signature, model.graph)
    examples = {} if signature is None or string is None else infer_examples(signature, string)
    length: dict[str, Any] = {
        "name": INFERENCE_HEADER_LENGTH,
        "in": "header",
        "required": False,
        "description": "Bytes of JSON at the beginning of a body with binary tensors.",
        "schema": {"type": "integer", "minimum": 0},
    }
    if media.BYTES in examples:
        length["examples"] = {media.BYTES: {"value": examples[media.BYTES].json_bytes}}
    bodies = {name: example.body for name, example in examples.items()}
    return {
        "operationId": operation_id("modelInfer", model, suffix),
        "summary": f"Ask {model.name} with tensors",
        "tags": TAGS,
        "parameters": [*_parameters(suffix, model), length],
        "requestBody": {"required": True, "content": content_of(schemas, bodies)},
        "responses": {
            "200": answer(
                "The outputs; with binary tensors the JSON stands before them.",
                {**static_answer("infer_answer"), media.BYTES: {}},
                {
                    INFERENCE_HEADER_LENGTH: {
                        "description": "Bytes of JSON at the beginning.",
                        "schema": {"type": "integer"},
                    }
                },
            ),
            **errors(CONVERTED),
        },
    }


def _of_script(infer: dict[str, Any]) -> dict[str, Any]:
    """Change the operation for a script, which reads anything and may answer any type and status."""
    content = {**infer["requestBody"]["content"], ANYTHING: {}}
    answered = {**infer["responses"]["200"], "content": {ANYTHING: {}}}
    return {
        **infer,
        "requestBody": {**infer["requestBody"], "content": content},
        "responses": {**infer["responses"], "200": answered, "default": answered_by_script()},
    }


def _request(signature: Signature | None) -> Schema:
    specs = {} if signature is None else signature.inputs
    tensors = [_tensor(name, spec) for name, spec in specs.items() if datatype_of(spec)]
    parameters = {"$ref": "#/components/schemas/OpenInferenceParameters"}
    wanted = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    return {
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "parameters": parameters,
            "inputs": {
                "type": "array",
                "items": {"anyOf": tensors} if tensors else {"type": "object"},
                **({"minItems": len(specs), "maxItems": len(specs)} if specs else {}),
            },
            "outputs": {"type": "array", "items": wanted},
        },
        "required": ["inputs"],
    }


def _tensor(name: str, spec: TensorSpec) -> Schema:
    datatype = datatype_of(spec)
    return {
        "type": "object",
        "properties": {
            "name": {"const": name},
            "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
            "datatype": {"const": datatype.name if datatype else ""},
            "parameters": {"$ref": "#/components/schemas/OpenInferenceParameters"},
            "data": {"type": "array", "items": NESTED},
        },
        "required": ["name", "shape", "datatype"],
    }
