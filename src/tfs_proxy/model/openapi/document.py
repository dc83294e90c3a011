"""OpenAPI 3.1 document of a service: the paths of parts.json, filled with the models' bodies."""

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from itertools import count
from math import prod
from string import Template
from typing import Any
from urllib.parse import quote

from tfs_proxy import __version__
from tfs_proxy.model.openapi.bodies import (
    ANY_MODEL,
    ANYTHING,
    BY_SIGNATURE,
    Content,
    DescribedModel,
    Service,
    answer_content,
    infer_bodies,
    request_content,
    serving_bodies,
)
from tfs_proxy.model.openapi.schemas import component
from tfs_proxy.model.report.served import sample_sizes
from tfs_proxy.values.attributes import ATTRIBUTES
from tfs_proxy.values.names import LABEL, LOADED_MODEL, SERVED_MODEL, SHORT_VERSION
from tfs_proxy.wire import media_types as media
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES, REQUEST_ID
from tfs_proxy.wire.routes import INPUT_NAMES, OUTPUT_NAMES

Part = dict[str, Any]

TITLE = "tfs-proxy"
DESCRIPTION = """\
The models served here, described by their signatures, the script and the settings.

Every error is `{"error": "..."}`. Bodies may come with `Content-Encoding: gzip`.
"""

EVERYWHERE = (400, 404, 405, 408, 413, 414, 431, 500, 503, 504)


def document_text(service: Service) -> bytes:
    """OpenAPI document in JSON; of many models it describes no model by name, since models come and go."""
    parts = _parts()
    paths = _whole(parts["platform"])
    schemas = dict(parts["schemas"])
    if service.console:
        paths["/"]["get"]["responses"]["200"] = _answer(**parts["page"])
    if service.many_models:
        paths |= _whole(parts["management"])
        if service.target_model:
            paths |= _whole(parts["target_model"])
    else:
        paths |= _whole(parts["limits"])
        paths["/invocations"] = {"post": _invocations(service, schemas)}
    if service.rest_api and service.models:
        paths |= _whole(parts["serving"])
        for model in service.models:
            bodies = serving_bodies(model)
            targets = {"": [], "/versions/{version}": [_parameter("version", SHORT_VERSION, model.versions)]}
            if model.labels:
                targets["/labels/{label}"] = [_parameter("label", LABEL, model.labels)]
            paths |= _model_paths("/v1/models", "serving_model", model, targets, bodies)
    if service.open_inference != "off":
        paths |= _whole(parts["open_inference"])
        schemas |= parts["open_inference_schemas"]
        for model in service.models or ((service.default,) if service.default_model else ()):
            # A label may take the place of a version.
            known = (*model.labels, *model.versions) if model.versions else ()
            targets = {"": [], "/versions/{version}": [_parameter("version", LABEL, known)]}
            by_script = service.open_inference == "script"
            inferences = {"/infer": infer_bodies(model, by_script=by_script)}
            part = "open_inference_model"
            paths |= _model_paths("/v2/models", part, model, targets, inferences, by_script=by_script)
    limit = f"{service.max_payload_bytes:,}"
    headers = {"405": ("Allow",), "503": ("Retry-After",)}
    responses = {
        status: _answer(text.replace("${MAX_BYTES}", limit), _ERROR, headers.get(status, ()))
        for status, text in parts["errors"].items()
    }
    title = TITLE if service.many_models else service.default_model or TITLE
    components = {"schemas": schemas, "responses": responses}
    document = {
        "openapi": "3.1.0",
        "info": {"title": title, "version": __version__, "description": DESCRIPTION},
        "paths": paths,
        "components": {**components, "headers": parts["headers"], "parameters": parts["parameters"]},
    }
    return json.dumps(document, indent=1).encode()


@cache
def _parts() -> Mapping[str, Any]:
    """Parts that depend on no model, where operations are abbreviated."""
    text = (files(__package__) / "parts.json").read_text(encoding="utf-8")
    values = {"LOADED_MODEL": json.dumps(LOADED_MODEL)[1:-1], "ATTRIBUTES": ", ".join(ATTRIBUTES)}
    return json.loads(Template(text).safe_substitute(values))  # type: ignore[no-any-return]


_ERROR: Content = {media.JSON: {"schema": component("Error")}}


def _whole(paths: Part) -> Part:
    """Paths with the headers and errors that each operation has."""
    return {
        path: {verb: _operation(abridged) for verb, abridged in operations.items()}
        for path, operations in paths.items()
    }


def _operation(abridged: Part) -> Part:
    everywhere = [_reference("parameters", name) for name in ("RequestId", "InferenceId", "TraceParent")]
    statuses = sorted((*EVERYWHERE, *abridged.get("errors", ())))
    responses = {"200": _answer(**abridged["answer"])}
    responses |= {f"{status}": _reference("responses", f"{status}") for status in statuses}
    if abridged.get("by_script"):
        responses["default"] = _answer("Any status that the script chooses.", {**_ERROR, **ANYTHING})
    taken = {key: value for key, value in abridged.items() if key not in {"answer", "errors", "by_script"}}
    parameters = [*abridged.get("parameters", ()), *everywhere]
    return {**taken, "parameters": parameters, "responses": responses}


def _answer(description: str, content: Content | None = None, headers: tuple[str, ...] = ()) -> Part:
    described = {name: _reference("headers", name) for name in (REQUEST_ID, *headers)}
    return {
        "description": description,
        "headers": described,
        **({} if content is None else {"content": content}),
    }


def _reference(kind: str, name: str) -> Part:
    return {"$ref": f"#/components/{kind}/{name}"}


def _invocations(service: Service, schemas: dict[str, Any]) -> Part:
    abridged = _parts()["invocations"]["/invocations"]["post"]
    default = f" Without Accept it is {service.default_accept}." if service.default_accept else ""
    signature = service.default.default_signature
    by_script = service.script is not None
    names = {} if signature is None else {INPUT_NAMES: sorted(signature.inputs)}
    if signature is not None and service.writes == BY_SIGNATURE:
        outputs = sorted(signature.outputs.items())
        names[OUTPUT_NAMES] = [name for name, spec in outputs for _ in range(prod(sample_sizes(spec)[1:]))]
    answer = {
        "description": f"The answer of the model, or of the script.{default}",
        "content": _with_components(answer_content(service), schemas),
        "headers": (CUSTOM_ATTRIBUTES,) if by_script else (),
    }
    return _operation(
        {
            **abridged,
            "description": f"The body is read by {service.reads}, the answer written by {service.writes}; "
            "Accept chooses its type. Content-Encoding may be gzip. A form may have a part for each input.",
            "requestBody": {"required": True, "content": _with_components(request_content(service), schemas)},
            "answer": answer,
            "by_script": by_script,
            **names,
        }
    )


def _model_paths(
    root: str,
    part: str,
    model: DescribedModel,
    targets: Mapping[str, list[Part]],
    bodies: Mapping[str, tuple[Content, Content]],
    *,
    by_script: bool = False,
) -> Part:
    """Paths of a part for a model, its versions and labels; calls that no signature has are left out."""
    paths: Part = {}
    names = []
    name = quote(model.name, safe="")
    if model == ANY_MODEL:
        names = [_parameter("model", SERVED_MODEL, ())]
        name = "{model}"
    for target, parameters in targets.items():
        for ending, operations in _parts()[part].items():
            ((verb, abridged),) = operations.items()
            if verb == "post" and ending not in bodies:
                continue
            which = target.strip("/").partition("/")[0]
            own = {
                **abridged,
                "operationId": ".".join(filter(None, (abridged["operationId"], model.name, which))),
                "summary": f"{abridged['summary']}: {model.name}",
                "parameters": [*names, *parameters],
            }
            if verb == "post":
                request, answered = bodies[ending]
                own["requestBody"] = {"required": True, "content": request}
                own["answer"] = {**abridged["answer"], "content": answered}
                own["by_script"] = by_script
            paths[f"{root}/{name}{target}{ending}"] = {verb: _operation(own)}
    return paths


def _parameter(name: str, pattern: str, values: tuple[object, ...]) -> Part:
    """Path parameter: one of ``values`` if they are known, else a match of ``pattern``."""
    described: Part = {"name": name, "in": "path", "required": True}
    if not values:
        return {**described, "schema": {"type": "string", "pattern": f"^{pattern}$"}}
    schema = {"type": "string", "enum": [f"{value}" for value in values]}
    return {**described, "schema": schema, "example": f"{values[-1]}"}


def _with_components(content: Content, schemas: dict[str, Any]) -> Content:
    """Moves the definitions of a script's schemas into ``schemas``; different ones of a name get numbers."""
    return {
        name: {**body, "schema": _lifted(body.get("schema", {}), schemas)} for name, body in content.items()
    }


def _lifted(schema: Part, schemas: dict[str, Any]) -> Part:
    for number in count(1):
        ending = "" if number == 1 else f".{number}"
        definitions: dict[str, Any] = {}

        def collect(node: Part, found: Part = definitions, ending: str = ending) -> Part:
            found |= {f"{name}{ending}": each for name, each in node.pop("$defs", {}).items()}
            return node

        text = re.sub(r'"#/\$defs/([^"]+)"', rf'"#/components/schemas/\1{ending}"', json.dumps(schema))
        lifted: Part = json.loads(text, object_hook=collect)
        if all(schemas.get(name, each) == each for name, each in definitions.items()):
            schemas |= definitions
            return lifted
    raise AssertionError
