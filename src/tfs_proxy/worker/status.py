"""Resources GET /execution-parameters and /openapi.json, for platforms."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import falcon

from tfs_proxy.data.shapes import has_records
from tfs_proxy.serving.script.load import Script
from tfs_proxy.values.deployment import Deployment, TransformLimits
from tfs_proxy.values.errors import RequestError
from tfs_proxy.values.signature import Signature, Target

if TYPE_CHECKING:
    from tfs_proxy.serving.script.script_model import ScriptModel

SignaturesOf = Callable[[Target], Mapping[str, Signature]]


class ExecutionParameters:
    """Values of the supervisor from the machine and the settings (docs/reference/sagemaker.md).

    BatchStrategy is left out, which means MultiRecord: SageMaker takes MULTI_RECORD for it, but local mode of
    its SDK refuses that. It is SINGLE_RECORD if ``signature`` leaves no size open for records.
    """

    method = "GET"

    def __init__(self, limits: TransformLimits, signature: Callable[[], Signature] | None = None) -> None:
        self._parameters = {"MaxConcurrentTransforms": limits.concurrent, "MaxPayloadInMB": limits.payload_mb}
        self._signature = signature

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with the values; a job's own fields override them."""
        strategy = {"BatchStrategy": "SINGLE_RECORD"} if self._takes_one_record() else {}
        resp.data = json.dumps({**self._parameters, **strategy}).encode()

    def _takes_one_record(self) -> bool:
        with suppress(RequestError):
            inputs = self._signature().inputs.values() if self._signature is not None else ()
            return not all(map(has_records, inputs))
        return False


class OpenApiResource:
    """Document of ``deployment``; ``signatures_of`` is asked each time, since versions come and go.

    The first request imports `worker.description`, which would delay the start.
    """

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
