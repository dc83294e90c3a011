"""What a job tells its serving stack, and what the stack says about how to send the records."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from tfs_proxy.errors import SettingsError, UpstreamError
from tfs_proxy.observe.routes import EXECUTION_PARAMETERS, INVOCATIONS, OPENAPI
from tfs_proxy.openapi.components import INPUT_NAMES
from tfs_proxy.settings import for_inner_stack
from tfs_proxy.transform.job import MULTI, SINGLE, ExecutionPlan, Job
from tfs_proxy.transform.records.csv_header import asks_model, header_of
from tfs_proxy.transform.send.connection import EndpointAddress, EndpointNotReached
from tfs_proxy.wire.connections import get

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

    A server of ours says SINGLE_RECORD only if its model takes no other, so that a job can't ask for more.
    Raises SettingsError if nothing listens there.
    """
    parameters = _object_at(endpoint, EXECUTION_PARAMETERS)
    plan = ExecutionPlan.resolve(job, parameters)
    is_limited = plan.strategy == MULTI and parameters.get("BatchStrategy") == "SINGLE_RECORD"
    inputs = input_names(_object_at(endpoint, OPENAPI)) if is_limited or asks_model(job) else ()
    if is_limited and inputs:
        plan = replace(plan, strategy=SINGLE)
    return replace(plan, header=header_of(job, inputs))


def _object_at(endpoint: EndpointAddress, path: str) -> dict[str, Any]:
    """The JSON object that the endpoint answers with; {} if there is none."""
    try:
        response = get(
            endpoint.host,
            endpoint.port,
            endpoint.beside(path),
            REQUEST_SECONDS,
            connect=endpoint.connect,
            server=endpoint.authority,
        )
        values = json.loads(response.body) if response.status == _HTTP_OK else None
    except EndpointNotReached as error:
        raise SettingsError(f"The endpoint can't be used: {error}.") from error
    except (UpstreamError, ValueError):
        values = None
    return values if isinstance(values, dict) else {}


def input_names(document: Mapping[str, Any]) -> Sequence[str]:
    """The names of the default model's inputs, as /openapi.json has them; () if it does not."""
    with contextlib.suppress(KeyError, TypeError):
        return [str(name) for name in document["paths"][INVOCATIONS]["post"][INPUT_NAMES]]
    return ()
