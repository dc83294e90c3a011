"""Paths of TF Serving's REST API below ``/v1``: status, metadata, and the signatures' methods."""

import json
from collections.abc import Mapping
from typing import Any

from tfs_proxy.model.graph_inputs import GraphInputs
from tfs_proxy.model.openapi.components import (
    EVERYWHERE,
    LONGEST_EXAMPLE_BYTES,
    WITH_BODY,
    answer,
    errors,
    json_content,
    of_request,
    path_parameter,
    static_answer,
    static_paths,
)
from tfs_proxy.model.openapi.examples import feature_values, json_string, sample_features, sample_string
from tfs_proxy.model.openapi.invocations import RESULTS
from tfs_proxy.model.openapi.service import AnyModel, DescribedModel
from tfs_proxy.model.openapi.tensors import Schema, answer_schema, request_schema
from tfs_proxy.model.report.served import sample_inputs
from tfs_proxy.values.names import LABEL, SERVED_MODEL, SHORT_VERSION
from tfs_proxy.values.signature import (
    CLASSIFY_METHOD,
    DEFAULT_SIGNATURE,
    PREDICT_METHOD,
    REGRESS_METHOD,
    Signature,
)
from tfs_proxy.wire.dtypes import has_json

Paths = dict[str, Any]

BY_VERSION, BY_LABEL = "/versions/{version}", "/labels/{label}"

TAGS = ["TensorFlow Serving"]
_ANY_FORM: Schema = {"type": "object"}


def serving_paths(models: tuple[DescribedModel, ...]) -> Paths:
    paths = static_paths("serving")
    for model in models:
        for suffix in ("", BY_VERSION, BY_LABEL) if model.labels else ("", BY_VERSION):
            path = f"/v1/models/{model.path_name}{suffix}"
            paths[path] = {"get": _shown("status", "States by version.", model, suffix)}
            paths[f"{path}/metadata"] = {"get": _shown("metadata", "Signatures by name.", model, suffix)}
            for method, operation in _methods(model, suffix).items():
                paths[f"{path}:{method}"] = {"post": operation}
    return paths


def operation_id(verb: str, model: DescribedModel, suffix: str) -> str:
    which = suffix.strip("/").partition("/")[0]
    return ".".join(filter(None, [verb, model.name, which]))


def parameters_of(suffix: str, model: DescribedModel) -> list[Any]:
    """Parameters of an operation, those of its path first."""
    version = {
        BY_LABEL: [path_parameter("label", LABEL, model.labels)],
        BY_VERSION: [path_parameter("version", SHORT_VERSION, model.versions)],
    }
    return [*name_parameters(model), *version.get(suffix, ()), *of_request()]


def name_parameters(model: DescribedModel) -> list[Any]:
    """Path parameter for the model's name, if the path has one."""
    return [path_parameter("model", SERVED_MODEL)] if isinstance(model, AnyModel) else []


def _shown(what: str, description: str, model: DescribedModel, suffix: str) -> dict[str, Any]:
    subject = "versions of {} and their states" if what == "status" else "signatures of {}"
    return {
        "operationId": operation_id(what, model, suffix),
        "summary": f"The {subject.format(model.name)}",
        "tags": TAGS,
        "parameters": parameters_of(suffix, model),
        "responses": {
            "200": answer(description, static_answer(f"serving_{what}")),
            **errors((*EVERYWHERE, 501)),
        },
    }


def _methods(model: DescribedModel, suffix: str) -> dict[str, Any]:
    """Operations for each method that the model's signatures have; for all if none is known."""
    by_method: dict[str, tuple[tuple[Schema, Any], Schema]] = {
        "predict": _predict_schemas(model),
        "classify": _example_schemas(model, CLASSIFY_METHOD),
        "regress": _example_schemas(model, REGRESS_METHOD),
    }
    return {
        method: {
            "operationId": operation_id(method, model, suffix),
            "summary": f"Ask {model.name} to {method}",
            "tags": TAGS,
            "parameters": parameters_of(suffix, model),
            "requestBody": {"required": True, "content": json_content(*request)},
            "responses": {
                "200": answer("The model server's answer.", json_content(answered)),
                **errors((*WITH_BODY, 429, 499)),
            },
        }
        for method, (request, answered) in by_method.items()
        if request[0].get("anyOf", True)
    }


def _predict_schemas(model: DescribedModel) -> tuple[tuple[Schema, Any], Schema]:
    if isinstance(model, AnyModel):
        return (_ANY_FORM, None), {"type": "object"}
    default = model.signatures.get(DEFAULT_SIGNATURE)
    signatures = _of_method(model, PREDICT_METHOD)
    forms = [
        request_schema(each, name=None if each is default else name) for name, each in signatures.items()
    ]
    sample = _sample(signatures, model.graph)
    return ({"anyOf": forms}, sample), {"anyOf": [answer_schema(each) for each in signatures.values()]}


def _sample(signatures: Mapping[str, Signature], graph: GraphInputs) -> Any:
    """One record for the default signature, or the first; None if JSON does not carry its types."""
    name = DEFAULT_SIGNATURE if DEFAULT_SIGNATURE in signatures else next(iter(signatures), None)
    if name is None or not has_json(signatures[name]):
        return None
    string = sample_string(signatures[name], graph)
    if string is None:
        return None
    sample = {**_named(name), **sample_inputs(signatures[name], json_string(string))}
    return sample if len(json.dumps(sample)) <= LONGEST_EXAMPLE_BYTES else None


def _example_schemas(model: DescribedModel, method: str) -> tuple[tuple[Schema, Any], Schema]:
    if isinstance(model, AnyModel):
        return (_ANY_FORM, None), RESULTS
    signatures = _of_method(model, method)
    forms = [
        {
            "type": "object",
            "properties": {
                "signature_name": {"const": name},
                "context": {"$ref": "#/components/schemas/Features"},
                "examples": {"type": "array", "items": {"$ref": "#/components/schemas/Features"}},
            },
            "required": ["examples"] if name == DEFAULT_SIGNATURE else ["examples", "signature_name"],
        }
        for name in signatures
    ]
    return ({"anyOf": forms}, _example_sample(signatures, model.graph)), RESULTS


def _example_sample(signatures: Mapping[str, Signature], graph: GraphInputs) -> Any:
    """One tf.Example for the first signature; None if its features are unknown."""
    name = next(iter(signatures), None)
    arrays = None if name is None else sample_features(signatures[name], graph)
    if name is None or arrays is None:
        return None
    return {**_named(name), "examples": [feature_values(arrays)]}


def _named(name: str) -> dict[str, str]:
    return {} if name == DEFAULT_SIGNATURE else {"signature_name": name}


def _of_method(model: DescribedModel, method: str) -> Mapping[str, Signature]:
    return {name: each for name, each in model.signatures.items() if each.method == method}
