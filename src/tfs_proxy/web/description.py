"""GET /openapi.json: what this worker serves, asked of the model server when it is asked for."""

from collections.abc import Callable, Mapping
from pathlib import Path

import falcon

from tfs_proxy.deployment import Deployment
from tfs_proxy.openapi.document import document_of, document_text
from tfs_proxy.openapi.service import Conversion, DescribedModel, ScriptBodies, Service
from tfs_proxy.script.ast_names import read_ast_names
from tfs_proxy.script.description import Description
from tfs_proxy.script.load import Script
from tfs_proxy.script.media_types import media_types_in
from tfs_proxy.script.script_model.call import ScriptModel
from tfs_proxy.signature import Signature, Target

SignaturesOf = Callable[[Target], Mapping[str, Signature]]


class OpenApiResource:
    """The document of ``deployment``; ``signatures_of`` is asked each time, since versions come and go."""

    method = "GET"

    def __init__(
        self,
        deployment: Deployment,
        signatures_of: SignaturesOf,
        script: ScriptBodies | None = None,
        *,
        has_metrics: bool = True,
    ) -> None:
        self._deployment = deployment
        self._signatures_of = signatures_of
        self._script = script
        self._has_metrics = has_metrics

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """OpenAPI 3.1 as JSON."""
        resp.data = document_text(document_of(self._service()))
        resp.content_type = falcon.MEDIA_JSON

    on_head = on_get

    def _service(self) -> Service:
        deployment = self._deployment
        return Service(
            models=tuple(
                DescribedModel(name, versions, self._signatures_of(Target(name)), deployment.version_labels)
                for name, versions in deployment.models.items()
            ),
            default_model=deployment.default_model,
            script=self._script,
            rest_api=deployment.publishes_rest,
            open_inference=deployment.open_inference,
            has_metrics=self._has_metrics,
            default_accept=deployment.default_accept,
        )


def bodies_of_script(script: Script) -> ScriptBodies:
    """What a script with AWS's handlers reads and writes itself."""
    default = Conversion.BY_SIGNATURE
    alone = script.handler is not None
    return ScriptBodies(
        reads=Conversion.BY_SCRIPT if alone or script.input_handler else default,
        writes=Conversion.BY_SCRIPT if alone or script.output_handler else default,
        description=script.description or Description(),
        mentions=_mentions(script.path),
    )


def bodies_of_script_model(script_model: ScriptModel) -> ScriptBodies:
    """The same for a script that is the model itself."""
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
