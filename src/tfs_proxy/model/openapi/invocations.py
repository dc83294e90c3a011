"""Operation ``POST /invocations``: all bodies that the default conversion or the script reads and writes."""

from collections.abc import Mapping
from typing import Any

from tfs_proxy.data.open_inference.datatypes import TRITON_TYPE, triton_type
from tfs_proxy.data.registry import FORMATS, Format, names_with
from tfs_proxy.model.openapi.components import (
    ANYTHING,
    CONVERTED,
    INPUT_NAMES,
    LONGEST_EXAMPLE_BYTES,
    Content,
    answer,
    answered_by_script,
    body_schema,
    content_of,
    errors,
    of_request,
    with_aliases,
)
from tfs_proxy.model.openapi.examples import ANY_STRING, example_bodies, infer_examples, sample_string
from tfs_proxy.model.openapi.service import Conversion, Service
from tfs_proxy.model.openapi.tensors import NESTED, Schema, answer_schema, records_schema, request_schema
from tfs_proxy.model.report.served import answers_in_rows
from tfs_proxy.values.signature import PREDICT_METHOD, Signature
from tfs_proxy.wire import media_types as media
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES


def invocations(service: Service) -> dict[str, Any]:
    replies = errors(CONVERTED)
    if service.script is not None:
        replies["default"] = answered_by_script()
    signature = None if service.default is None else service.default.default_signature
    return {
        "operationId": "invoke",
        "summary": "Ask the model, or the script",
        "description": f"The body is read by {service.reads.value}, the answer written by "
        f"{service.writes.value}; Accept chooses its type. Content-Encoding may be gzip.",
        "tags": ["SageMaker"],
        "parameters": of_request("CustomAttributes"),
        "requestBody": {"required": True, "content": _request_content(service)},
        "responses": {"200": _answered(service), **replies},
        **({} if signature is None else {INPUT_NAMES: sorted(signature.inputs)}),
    }


def _request_content(service: Service) -> Content:
    """Request bodies: those the script describes, else those the conversion reads, else anything."""
    script = service.script
    if script is not None and script.description.accepts is not None:
        return content_of(script.description.accepts, script.description.examples)
    match service.reads:
        case Conversion.BY_SIGNATURE:
            return _converted(service)
        case Conversion.OF_ARRAYS:
            return _content_of_arrays()
        case Conversion.BY_SCRIPT:
            mentions = () if script is None else script.mentions
            examples = {} if script is None else script.description.examples
            names = dict.fromkeys((*examples, *mentions))
            content = content_of({name: body_schema(name) for name in names}, examples)
            return {**content, ANYTHING: {}}


def _converted(service: Service) -> Content:
    """Bodies that the conversion reads for the default model; anything if its signatures are unknown."""
    signature = None if service.default is None else service.default.default_signature
    if signature is None or service.default is None:
        return {name: {"schema": body_schema(name)} for name in with_aliases(names_with(_reads))}
    string = sample_string(signature, service.default.graph)
    bodies = example_bodies(signature, ANY_STRING if string is None else string)
    schemas = {name: _request_schema(name, service) for name in with_aliases(bodies)}
    described = content_of(schemas, {} if string is None else bodies)
    by_script = service.script is not None
    return described if by_script else {**described, **_as_triton_takes_it(signature, string)}


def _as_triton_takes_it(signature: Signature, string: bytes | None) -> Content:
    """Open Inference Protocol in Triton's media type, which gives the length of the example's JSON."""
    example = infer_examples(signature, ANY_STRING if string is None else string).get(media.BYTES)
    if example is None:
        return {}
    if string is None or len(example.body) > LONGEST_EXAMPLE_BYTES:
        return content_of({TRITON_TYPE: TRITON_BODY})
    name = triton_type(example.json_bytes)
    return content_of({name: TRITON_BODY}, {name: example.body})


def _reads(row: Format) -> Any:
    return row.decode


def _request_schema(media_type: str, service: Service) -> Schema:
    """Schema of JSON for the default signature, which predict takes with any method, or for a named one."""
    model = service.default
    signature = None if model is None else model.default_signature
    if media_type != media.JSON or model is None or signature is None:
        return body_schema(media_type)
    others = {name: each for name, each in model.signatures.items() if each is not signature}
    predicting = [
        request_schema(each, name=name) for name, each in others.items() if each.method == PREDICT_METHOD
    ]
    has_features = any(each.method != PREDICT_METHOD for each in model.signatures.values())
    features = [FEATURES] if has_features else []
    return {"anyOf": [request_schema(signature), records_schema(signature), *predicting, *features]}


def _content_of_arrays() -> Content:
    """Content of arrays without a signature: the default input of a script model without input_fn."""
    names = with_aliases(names_with(lambda row: row.decode_array))
    return {name: {"schema": NESTED if name == media.JSON else body_schema(name)} for name in names}


def _answered(service: Service) -> dict[str, Any]:
    headers = None
    if service.script is not None:
        headers = {CUSTOM_ATTRIBUTES: {"$ref": f"#/components/headers/{CUSTOM_ATTRIBUTES}"}}
    default = f" Without Accept it is {service.default_accept}." if service.default_accept else ""
    return answer(f"The answer of the model, or of the script.{default}", _answer_content(service), headers)


def _answer_content(service: Service) -> Content:
    script = service.script
    if script is not None and script.description.returns is not None:
        return content_of(script.description.returns)
    match service.writes:
        case Conversion.BY_SCRIPT:
            return {ANYTHING: {}}
        case Conversion.OF_ARRAYS:
            names = with_aliases(names_with(lambda row: row.encode_array))
            return {name: {"schema": {} if name == media.JSON else body_schema(name)} for name in names}
        case Conversion.BY_SIGNATURE:
            schemas = {**_answer_schemas(service), **({TRITON_TYPE: {}} if service.script is None else {})}
            return {name: {"schema": schema} for name, schema in schemas.items()}


def _answer_schemas(service: Service) -> Mapping[str, Schema]:
    model = service.default
    signatures = () if model is None else tuple(model.signatures.values())
    writable = {row.name for row in FORMATS.values() if row.encode and _can_be_written(row, signatures)}
    names = with_aliases(name for name in FORMATS if name in writable)
    return {name: _answer_schema(name, signatures) for name in names}


def _can_be_written(row: Format, signatures: tuple[Signature, ...]) -> bool:
    """True if some request may get an answer in this format, by any of the signatures."""
    by_record = not row.by_record or not signatures or any(map(answers_in_rows, signatures))
    single = row.name != media.NPY or not signatures or any(len(each.outputs) == 1 for each in signatures)
    return by_record and single


def _answer_schema(media_type: str, signatures: tuple[Signature, ...]) -> Schema:
    if media_type != media.JSON:
        return body_schema(media_type)
    return {"anyOf": [*(answer_schema(each) for each in _distinct(signatures)), RESULTS]}


def _distinct(signatures: tuple[Signature, ...]) -> list[Signature]:
    distinct: list[Signature] = []
    for signature in signatures:
        known = [each.outputs for each in distinct]
        if signature.outputs not in known:
            distinct.append(signature)
    return distinct


TRITON_BODY: Schema = {
    "description": "A request of the Open Inference Protocol: json-header-size bytes of JSON, then the "
    "binary tensors; JSON alone without the parameter."
}
FEATURES: Schema = {
    "description": "Examples for classify and regress, which the custom attribute tfs-method chooses.",
    "type": "object",
    "properties": {"examples": {"type": "array", "items": {"$ref": "#/components/schemas/Features"}}},
    "required": ["examples"],
}
RESULTS: Schema = {
    "description": "Results of classify or regress, one for each example.",
    "type": "object",
    "properties": {"results": {"type": "array"}},
    "required": ["results"],
}
