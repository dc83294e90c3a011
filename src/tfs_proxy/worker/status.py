"""Resources GET /ping, /metrics, /execution-parameters and /openapi.json, for platforms."""

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
from tfs_proxy.wire.http_messages import HttpResponse

if TYPE_CHECKING:
    from tfs_proxy.serving.script.script_model import ScriptModel

Ping = Callable[[], tuple[int, bytes]]
"""Function that asks the control API; returns HTTP status and body of its answer."""

SignaturesOf = Callable[[Target], Mapping[str, Signature]]

FetchMetrics = Callable[[str | None], HttpResponse]
"""Function that asks the control API for its metrics in the form that an Accept header names."""


class PingResource:
    """Relays the supervisor's answer: 200 and empty, or 503 and ``{"error": reason}``.

    nginx asks the control API itself and never comes here.
    """

    method = "GET"

    def __init__(self, ping: Ping) -> None:
        self._ping = ping

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with the health of the whole container (docs/reference/sagemaker.md)."""
        resp.status, resp.data = self._ping()
        if not resp.data:
            resp.content_type = None

    on_head = on_get


class MetricsResource:
    """Relays the supervisor's metrics; nginx asks the control API itself and never comes here."""

    method = "GET"

    def __init__(self, fetch: FetchMetrics) -> None:
        self._fetch = fetch

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        answer = self._fetch(req.get_header("Accept"))
        resp.status, resp.data, resp.content_type = answer.status, answer.body, answer.header("Content-Type")

    on_head = on_get


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
