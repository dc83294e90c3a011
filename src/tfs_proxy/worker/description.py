"""OpenAPI document of a worker, made from its deployment and script for `worker.status`."""

from collections.abc import Callable, Mapping
from pathlib import Path

from tfs_proxy.model.graph_inputs import known_inputs
from tfs_proxy.model.openapi.bodies import (
    BY_SCRIPT,
    BY_SIGNATURE,
    OF_ARRAYS,
    DescribedModel,
    ScriptBodies,
    Service,
)
from tfs_proxy.model.openapi.description import Description
from tfs_proxy.model.openapi.document import document_text
from tfs_proxy.model.script_syntax import media_types_in, read_ast_names
from tfs_proxy.serving.script.load import Script
from tfs_proxy.serving.script.script_model import ScriptModel
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.signature import Signature, Target


def description(
    deployment: Deployment,
    signatures_of: Callable[[Target], Mapping[str, Signature]],
    script: Script | ScriptModel | None,
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
        open_inference=deployment.doors.open_inference,
        console=deployment.doors.console,
        default_accept=deployment.default_accept,
        max_payload_bytes=deployment.bodies.payload_bytes,
    )
    return document_text(service)


def _bodies(script: Script | ScriptModel | None) -> ScriptBodies | None:
    if script is None:
        return None
    if isinstance(script, Script):
        default = BY_SIGNATURE
        alone = script.handler is not None
        reads = script.input_handler
        writes = script.output_handler
    else:
        default = OF_ARRAYS
        alone = script.transform_fn is not None
        reads = script.input_fn
        writes = script.output_fn
    ast_names = read_ast_names(Path(script.path))
    return ScriptBodies(
        reads=BY_SCRIPT if alone or reads else default,
        writes=BY_SCRIPT if alone or writes else default,
        description=script.description or Description(),
        mentions=() if ast_names is None else media_types_in(ast_names.tree),
    )
