"""Subject of a document, and its bodies by media type, one for each kind, with schemas and examples."""

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from tfs_proxy.data.registry import FORMATS, names_with
from tfs_proxy.model.graph_inputs import GraphInputs
from tfs_proxy.model.openapi.description import Description
from tfs_proxy.model.openapi.examples import (
    ANY_STRING,
    example_bodies,
    feature_values,
    infer_example,
    json_string,
    sample_features,
    sample_string,
)
from tfs_proxy.model.openapi.schemas import (
    NESTED,
    Schema,
    answer_forms,
    body_schema,
    component,
    examples_schema,
    infer_schema,
    records_schema,
    request_forms,
)
from tfs_proxy.model.report.served import answers_in_rows, sample_inputs
from tfs_proxy.values.signature import (
    CLASSIFY_METHOD,
    DEFAULT_SIGNATURE,
    PREDICT_METHOD,
    REGRESS_METHOD,
    Signature,
    default_signature,
)
from tfs_proxy.wire import media_types as media
from tfs_proxy.wire.dtypes import has_json

BY_SIGNATURE = "the default conversion by the model's signature"
OF_ARRAYS = "the default conversion of arrays, without a signature"
BY_SCRIPT = "the script"


class ScriptBodies(Struct, frozen=True):
    """Reader and writer of bodies, the script's description, and the media types that its text names."""

    reads: str = BY_SCRIPT
    writes: str = BY_SCRIPT
    description: Description = field(default_factory=Description)
    mentions: tuple[str, ...] = ()


class DescribedModel(Struct, frozen=True):
    """One served model, as its clients see it."""

    name: str
    """Name of the model."""

    versions: tuple[int, ...] = ()
    """Version numbers, ascending; none if the model server itself follows the model's folder."""

    signatures: Mapping[str, Signature] = field(default_factory=dict)
    """Signatures of the newest version, by name."""

    labels: tuple[str, ...] = ()
    """Labels that stand for some of the versions."""

    graph: GraphInputs = field(default_factory=GraphInputs)
    """Use that the graph makes of strings, such as to decode pictures."""

    @property
    def default_signature(self) -> Signature | None:
        """Signature of a request that names none."""
        return default_signature(self.signatures)

    def by_method(self, method: str) -> list[Signature]:
        """Signatures of this method, the default one first."""
        found = [each for each in self.signatures.values() if each.method == method]
        return sorted(found, key=lambda each: each.name != DEFAULT_SIGNATURE)


ANY_MODEL = DescribedModel("model")
"""Any of many models, whose name is a parameter of the path."""


class Service(Struct, frozen=True):
    """Interface of a run for its clients."""

    models: tuple[DescribedModel, ...]
    """Models that are served."""

    default_model: str
    """Name of the model for requests that name none."""

    script: ScriptBodies | None = None
    """Bodies of the script; None without one."""

    rest_api: bool = False
    """True if TF Serving's API is published."""

    open_inference: str = "off"
    """Part that answers inferences of the Open Inference Protocol: model, script or off."""

    console: bool = False
    """True if a browser gets a page at ``/``."""

    default_accept: str | None = None
    """Type of the answer for clients that name none; None for JSON."""

    max_payload_bytes: int = 0
    """Largest body of a request."""

    many_models: bool = False
    """True if models come and go."""

    target_model: bool = False
    """True if requests may name an archive in a header."""

    @property
    def default(self) -> DescribedModel:
        """Model that ``/invocations`` asks unless a request names another."""
        return next(
            (model for model in self.models if model.name == self.default_model),
            DescribedModel(self.default_model, (1,)),
        )

    @property
    def reads(self) -> str:
        return BY_SIGNATURE if self.script is None else self.script.reads

    @property
    def writes(self) -> str:
        return BY_SIGNATURE if self.script is None else self.script.writes


Content = dict[str, Any]
"""Media Type Objects by media type."""

ANYTHING: Content = {"*/*": {}}

LONGEST_EXAMPLE_BYTES = 256 * 1024
"""Longest example; longer ones are left out, since people read the document."""


def content_of(schemas: Mapping[str, Mapping[str, Any]], examples: Mapping[str, bytes]) -> Content:
    """Content by media type, each with its schema and its example, if there is one."""
    content: Content = {}
    for name, schema in schemas.items():
        content[name] = {"schema": schema}
        body = examples.get(name)
        if body is not None and len(body) <= LONGEST_EXAMPLE_BYTES:
            content[name]["examples"] = {"sample": _example(name, body)}
    return content


def _example(media_type: str, body: bytes) -> dict[str, Any]:
    """Make an Example Object: JSON as a value, text as a string, bytes as a ``data:`` URI (RFC 2397)."""
    row = FORMATS.get(media_type)
    try:
        if media_type == media.JSON or media_type.endswith("+json"):
            return {"value": json.loads(body)}
        if (row is not None and row.is_text) or media_type.startswith("text/"):
            return {"value": body.decode()}
    except ValueError:
        pass
    return {"externalValue": f"data:{media_type};base64,{base64.b64encode(body).decode()}"}


def request_content(service: Service) -> Content:
    """Bodies of ``/invocations``: described by the script, read by a conversion, or anything."""
    description = None if service.script is None else service.script.description
    if description is not None and description.accepts is not None:
        return content_of(description.accepts, description.examples)
    if service.reads == BY_SIGNATURE:
        signature = service.default.default_signature
        if signature is None:
            return content_of(_by_name(names_with(lambda row: row.decode), json_schema={}), {})
        others = [each for each in service.default.by_method(PREDICT_METHOD) if each is not signature]
        named = [form for each in others for form in request_forms(each, named=True)]
        has_features = any(each.method != PREDICT_METHOD for each in service.default.signatures.values())
        features = [component("Examples")] if has_features else []
        forms = [*request_forms(signature), records_schema(signature), *named, *features]
        string = sample_string(signature, service.default.graph)
        bodies = example_bodies(signature, ANY_STRING if string is None else string)
        return content_of(_by_name(bodies, json_schema={"anyOf": forms}), {} if string is None else bodies)
    if service.script is not None and service.reads == BY_SCRIPT:
        names = dict.fromkeys((*service.script.description.examples, *service.script.mentions))
        schemas = {name: body_schema(name) for name in names}
        return {**content_of(schemas, service.script.description.examples), **ANYTHING}
    return content_of(_by_name(names_with(lambda row: row.decode_array), json_schema=NESTED), {})


def _by_name(names: Iterable[str], *, json_schema: Schema) -> Mapping[str, Schema]:
    return {name: json_schema if name == media.JSON else body_schema(name) for name in names}


def answer_content(service: Service) -> Content:
    """Bodies of the answers of ``/invocations``."""
    script = service.script
    if script is not None and script.description.returns is not None:
        return content_of(script.description.returns, {})
    if service.writes == BY_SCRIPT:
        return ANYTHING
    if service.writes != BY_SIGNATURE:
        return content_of(_by_name(names_with(lambda row: row.encode_array), json_schema={}), {})
    signatures = tuple(service.default.signatures.values())
    # Some request may get an answer in these formats, by any of the signatures.
    in_rows = not signatures or any(map(answers_in_rows, signatures))
    alone = not signatures or any(len(each.outputs) == 1 for each in signatures)
    written = ((name, row) for name, row in FORMATS.items() if row.encode and (in_rows or not row.by_record))
    names = [name for name, row in written if alone or row.name != media.NPY]
    forms = [form for each in signatures for form in answer_forms(each)]
    schema = {"anyOf": [*forms, component("Results")]}
    return content_of(_by_name(names, json_schema=schema), {})


JsonBodies = tuple[Content, Content]
"""Content of a request and of its answer, both JSON."""


def serving_bodies(model: DescribedModel) -> Mapping[str, JsonBodies]:
    """Bodies of TF Serving's REST API by the method's ending, for those that the signatures have."""
    any_form: JsonBodies = (_json({"type": "object"}), _json({"type": "object"}))
    if model == ANY_MODEL:
        return dict.fromkeys((":predict", ":classify", ":regress"), any_form)
    found: dict[str, JsonBodies] = {}
    if predicting := model.by_method(PREDICT_METHOD):
        forms = [
            form for each in predicting for form in request_forms(each, named=each.name != DEFAULT_SIGNATURE)
        ]
        answers = [form for each in predicting for form in answer_forms(each)]
        one = predicting[0]
        string = sample_string(one, model.graph) if has_json(one) else None
        sample = None if string is None else sample_inputs(one, json_string(string))
        request = _json({"anyOf": forms}, _named(one, sample))
        found[":predict"] = request, _json({"anyOf": answers})
    for ending, method in ((":classify", CLASSIFY_METHOD), (":regress", REGRESS_METHOD)):
        if signatures := model.by_method(method):
            arrays = sample_features(signatures[0], model.graph)
            sample = None if arrays is None else {"examples": [feature_values(arrays)]}
            schema = {"anyOf": [examples_schema(each) for each in signatures]}
            found[ending] = (_json(schema, _named(signatures[0], sample)), _json(component("Results")))
    return found


def _named(signature: Signature, sample: Mapping[str, Any] | None) -> Any:
    if sample is None or signature.name == DEFAULT_SIGNATURE:
        return sample
    return {"signature_name": signature.name, **sample}


def infer_bodies(model: DescribedModel, *, by_script: bool) -> JsonBodies:
    """Bodies of the Open Inference Protocol; a script reads anything and may answer any type."""
    signature = model.default_signature
    string = None if signature is None else sample_string(signature, model.graph)
    sample = None if signature is None or string is None else infer_example(signature, string)
    request = _json(infer_schema(signature), sample)
    answered = _json(component("OpenInferenceAnswer"))
    return ({**request, **ANYTHING}, ANYTHING) if by_script else (request, answered)


def _json(schema: Schema, example: Any = None) -> Content:
    """Content of a JSON body; ``example`` is a value, None if there is none."""
    has_example = example is not None and len(json.dumps(example)) <= LONGEST_EXAMPLE_BYTES
    return {media.JSON: {"schema": schema, **({"example": example} if has_example else {})}}
