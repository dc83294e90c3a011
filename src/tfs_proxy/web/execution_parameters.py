"""GET /execution-parameters: how a batch transform job is best driven, for the platform to pick up."""

import json

import falcon

from tfs_proxy.deployment import TransformLimits


class ExecutionParameters:
    """Answers what the supervisor computed from the machine and the settings (docs/reference/sagemaker.md).

    MultiRecord is meant by leaving BatchStrategy out: SageMaker takes MULTI_RECORD for it, but local mode of
    its SDK refuses that.
    """

    method = "GET"

    def __init__(self, limits: TransformLimits) -> None:
        self._body = json.dumps(
            {
                "MaxConcurrentTransforms": limits.concurrent,
                "MaxPayloadInMB": limits.payload_mb,
            }
        ).encode()

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Both values; a job's own wishes come before them."""
        resp.data = self._body
