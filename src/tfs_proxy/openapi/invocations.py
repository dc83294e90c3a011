"""``POST /invocations``: every body that the default conversion, or the script, reads and writes."""

from collections.abc import Mapping
from typing import Any

from tfs_proxy.openapi.components import CONVERTED, ERROR, answer, errors, of_request
from tfs_proxy.openapi.content import (
    Content,
    body_schema,
    content_of,
    json_content,
    with_aliases,
)
from tfs_proxy.openapi.examples import example_bodies
from tfs_proxy.openapi.service import Conversion, Service
from tfs_proxy.openapi.tensors import (
    NESTED,
    Schema,
    answer_schema,
    records_schema,
    request_schema,
)
from tfs_proxy.payload import media_types as media
from tfs_proxy.payload.registry import FORMATS, Format, names_with
from tfs_proxy.report.sample import answers_in_rows
from tfs_proxy.signature import PREDICT_METHOD, Signature
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES

ANYTHING = "*/*"
LINES = frozenset({media.JSON_LINES, media.JSONS})


def invocations(service: Service) -> dict[str, Any]:
    """The operation."""
    replies = errors(CONVERTED)
    if service.script is not None:
        replies["default"] = _answered_by_script()
    return {
        "operationId": "invoke",
        "summary": "Ask the model, or the script",
        "description": f"The body is read by {service.reads.value}, the answer written by "
        f"{service.writes.value}; Accept chooses its type. Content-Encoding may be gzip.",
        "tags": ["SageMaker"],
        "parameters": of_request("CustomAttributes"),
        "requestBody": {"required": True, "content": _request_content(service)},
        "responses": {"200": _answered(service), **replies},
    }


def _request_content(service: Service) -> Content:
    """What may be sent: what the script describes, else what the conversion reads, else anything."""
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
    """What the default conversion reads for the default model; anything if its signatures are not known."""
    signature = None if service.default is None else service.default.default_signature
    if signature is None or service.default is None:
        return {name: {"schema": body_schema(name)} for name in with_aliases(names_with(_reads))}
    if signature.method != PREDICT_METHOD:
        return _features()
    examples = example_bodies(signature)
    schemas = {name: _request_schema(name, service) for name in with_aliases(examples)}
    return content_of(schemas, examples)


def _reads(row: Format) -> Any:
    return row.decode


def _request_schema(media_type: str, service: Service) -> Schema:
    model = service.default
    signature = None if model is None else model.default_signature
    if media_type != media.JSON or model is None or signature is None:
        return body_schema(media_type)
    others = [
        request_schema(each, name=name)
        for name, each in model.signatures.items()
        if each is not signature and each.method == PREDICT_METHOD
    ]
    return {"anyOf": [request_schema(signature), records_schema(signature), *others]}


def _features() -> Content:
    """What classify and regress take: the graph, not the signature, says which features there are."""
    names = with_aliases(names_with(lambda row: row.decode_examples))
    schema: Schema = {
        "type": "object",
        "properties": {"examples": {"type": "array", "items": {"$ref": "#/components/schemas/Features"}}},
        "required": ["examples"],
    }
    return {name: {"schema": schema if name == media.JSON else body_schema(name)} for name in names}


def _content_of_arrays() -> Content:
    """Arrays without a signature: what a script model gets that has no input_fn of its own."""
    names = with_aliases(names_with(lambda row: row.decode_array))
    return {name: {"schema": NESTED if name == media.JSON else body_schema(name)} for name in names}


def _answered(service: Service) -> dict[str, Any]:
    headers = None
    if service.script is not None:
        headers = {CUSTOM_ATTRIBUTES: {"$ref": f"#/components/headers/{CUSTOM_ATTRIBUTES}"}}
    return answer("The answer of the model, or of the script.", _answer_content(service), headers)


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
            return {name: {"schema": schema} for name, schema in _answer_schemas(service).items()}


def _answer_schemas(service: Service) -> Mapping[str, Schema]:
    model = service.default
    signatures = () if model is None else tuple(model.signatures.values())
    writable = {row.name for row in FORMATS.values() if row.encode and _can_be_written(row, signatures)}
    names = with_aliases(name for name in FORMATS if name in writable)
    return {name: _answer_schema(name, signatures) for name in names}


def _can_be_written(row: Format, signatures: tuple[Signature, ...]) -> bool:
    """Whether a request may get an answer of this format, by any of the signatures."""
    by_record = not row.by_record or not signatures or any(map(answers_in_rows, signatures))
    single = row.name != media.NPY or not signatures or any(len(each.outputs) == 1 for each in signatures)
    return by_record and single


def _answer_schema(media_type: str, signatures: tuple[Signature, ...]) -> Schema:
    if media_type != media.JSON:
        return body_schema(media_type)
    return {"anyOf": [*(answer_schema(each) for each in _distinct(signatures)), RESULTS]}


def _distinct(signatures: tuple[Signature, ...]) -> list[Signature]:
    """Signatures of predict whose outputs differ."""
    distinct: list[Signature] = []
    for signature in signatures:
        known = [each.outputs for each in distinct]
        if signature.method == PREDICT_METHOD and signature.outputs not in known:
            distinct.append(signature)
    return distinct


RESULTS: Schema = {
    "description": "What classify and regress give for each example.",
    "type": "object",
    "properties": {"results": {"type": "array"}},
    "required": ["results"],
}


def _answered_by_script() -> dict[str, Any]:
    return answer("Any status that the script chooses.", {**json_content(ERROR), ANYTHING: {}})
