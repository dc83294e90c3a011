"""What a job tells its serving stack, and what the stack says about how to send the records."""

import json
from collections.abc import Mapping

from tfs_proxy.errors import SettingsError, UpstreamError
from tfs_proxy.settings import for_inner_stack
from tfs_proxy.transform.job import MULTI, SINGLE, ExecutionPlan, Job
from tfs_proxy.transform.send.connection import EndpointAddress, EndpointNotReached
from tfs_proxy.wire.connections import get
from tfs_proxy.wire.http_messages import HttpResponse

REQUEST_SECONDS = 10.0
_HTTP_OK = 200


def stack_environment(base: Mapping[str, str], job: Job) -> dict[str, str]:
    """``base``, the variables that SageMaker sets in a batch job, and the job's own Environment.

    Only what the job sets explicitly is included (docs/reference/sagemaker.md).
    """
    requested = {
        "SAGEMAKER_MAX_PAYLOAD_IN_MB": job.max_payload_mb,
        "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": job.max_concurrent,
        "SAGEMAKER_BATCH_STRATEGY": {SINGLE: "SINGLE_RECORD", MULTI: "MULTI_RECORD"}.get(job.strategy or ""),
    }
    variables = {name: str(value) for name, value in requested.items() if value is not None}
    inner = {name: value for name, value in for_inner_stack(base).items() if name != "TFS_PROXY_LOG_FORMAT"}
    return {**inner, "SAGEMAKER_BATCH": "true", **variables, **job.environment}


def fetch_plan(job: Job, endpoint: EndpointAddress) -> ExecutionPlan:
    """How to send the records of ``job``; asks ``GET /execution-parameters``, which a server need not know.

    Raises SettingsError if nothing listens there.
    """
    try:
        response = _get(endpoint, endpoint.parameters_path)
        values = json.loads(response.body) if response.status == _HTTP_OK else None
    except EndpointNotReached as error:
        raise SettingsError(f"The endpoint can't be used: {error}.") from error
    except (UpstreamError, ValueError):
        values = None
    return ExecutionPlan.resolve(job, values if isinstance(values, dict) else {})


def _get(endpoint: EndpointAddress, path: str) -> HttpResponse:
    return get(
        endpoint.host,
        endpoint.port,
        path,
        REQUEST_SECONDS,
        connect=endpoint.connect,
        server=endpoint.authority,
    )
