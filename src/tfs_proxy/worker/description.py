"""OpenAPI document of a worker, made from its deployment and script for `worker.status`."""

from pathlib import Path

from tfs_proxy.model.graph_inputs import known_inputs
from tfs_proxy.model.openapi.description import Description
from tfs_proxy.model.openapi.document import document_of, document_text
from tfs_proxy.model.openapi.service import Conversion, DescribedModel, ScriptBodies, Service
from tfs_proxy.model.script_syntax import media_types_in, read_ast_names
from tfs_proxy.serving.script.load import Script
from tfs_proxy.serving.script.script_model import ScriptModel
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.signature import Target
from tfs_proxy.worker.status import SignaturesOf


def description(
    deployment: Deployment, signatures_of: SignaturesOf, script: Script | ScriptModel | None
) -> bytes:
    """Write the document as JSON; raises as ``signatures_of`` does if a model server does not answer."""
    service = Service(
        models=tuple(
            DescribedModel(
                name,
                versions,
                signatures_of(Target(name)),
                deployment.version_labels,
                known_inputs(deployment.graph_folders.get(name)),
            )
            for name, versions in deployment.models.items()
        ),
        default_model=deployment.default_model,
        script=_bodies(script),
        rest_api=deployment.publishes_rest,
        open_inference=deployment.open_inference,
        console=deployment.console,
        default_accept=deployment.default_accept,
        max_payload_bytes=deployment.max_payload_bytes,
    )
    return document_text(document_of(service))


def _bodies(script: Script | ScriptModel | None) -> ScriptBodies | None:
    match script:
        case None:
            return None
        case Script():
            return _bodies_of_handlers(script)
        case ScriptModel():
            return _bodies_of_script_model(script)


def _bodies_of_handlers(script: Script) -> ScriptBodies:
    default = Conversion.BY_SIGNATURE
    alone = script.handler is not None
    return ScriptBodies(
        reads=Conversion.BY_SCRIPT if alone or script.input_handler else default,
        writes=Conversion.BY_SCRIPT if alone or script.output_handler else default,
        description=script.description or Description(),
        mentions=_mentions(script.path),
    )


def _bodies_of_script_model(script_model: ScriptModel) -> ScriptBodies:
    default = Conversion.OF_ARRAYS
    alone = script_model.transform_fn is not None
    return ScriptBodies(
        reads=Conversion.BY_SCRIPT if alone or script_model.input_fn else default,
        writes=Conversion.BY_SCRIPT if alone or script_model.output_fn else default,
        description=script_model.description or Description(),
        mentions=_mentions(script_model.path),
    )


def _mentions(path: str) -> tuple[str, ...]:
    ast_names = read_ast_names(Path(path))
    return () if ast_names is None else media_types_in(ast_names.tree)
