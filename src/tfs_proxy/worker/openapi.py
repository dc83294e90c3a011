"""Resource GET /openapi.json: the first request imports `worker.description`, which would delay the start."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import falcon

from tfs_proxy.serving.script.load import Script
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.signature import Signature, Target

if TYPE_CHECKING:
    from tfs_proxy.serving.script.script_model import ScriptModel

SignaturesOf = Callable[[Target], Mapping[str, Signature]]


class OpenApiResource:
    """Document of ``deployment``; ``signatures_of`` is asked each time, since versions come and go."""

    method = "GET"

    def __init__(
        self, deployment: Deployment, signatures_of: SignaturesOf, script: "Script | ScriptModel | None"
    ) -> None:
        self._deployment = deployment
        self._signatures_of = signatures_of
        self._script = script

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        from tfs_proxy.worker.description import description

        resp.data = description(self._deployment, self._signatures_of, self._script)
        resp.content_type = falcon.MEDIA_JSON

    on_head = on_get
