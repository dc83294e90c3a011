"""Asks all stages whether they are ready, and how a batch job should send requests."""

import asyncio
import json
from collections.abc import Mapping, Sequence

from tfs_proxy.errors import UpstreamError, UpstreamTimeout
from tfs_proxy.memory import MEGABYTE
from tfs_proxy.pipeline.stage import Stage
from tfs_proxy.pipeline.stage_client import message_of
from tfs_proxy.supervisor.host.sockets import LOOPBACK
from tfs_proxy.wire.connections import get_async

ASK_SECONDS = 2.0
"""How long SageMaker waits for the answer to a ping (docs/reference/sagemaker.md)."""

OK = 200


async def faults(stages: Sequence[Stage]) -> list[str]:
    """Why the pipeline is not ready: a sentence for each stage that is not (docs/reference/sagemaker.md)."""
    stage_faults = await asyncio.gather(*(_fault(stage) for stage in stages))
    return [f"{stage.name}: {fault}" for stage, fault in zip(stages, stage_faults, strict=True) if fault]


async def _fault(stage: Stage) -> str | None:
    try:
        reply = await get_async(LOOPBACK, stage.port, "/ping", ASK_SECONDS)
    except UpstreamTimeout:
        return f"no answer to /ping within {ASK_SECONDS:g} s"
    except UpstreamError:
        return "nothing listens on its port"
    return None if reply.status == OK else message_of(reply.body) or f"/ping answers {reply.status}"


async def execution_parameters(stages: Sequence[Stage], hop_limit_bytes: int) -> dict[str, object]:
    """The least of what the stages answer, and no more MB than the limit between two stages.

    BatchStrategy is left out, which means MultiRecord, unless a stage takes one record a request.
    """
    answers = await asyncio.gather(*(_parameters(stage) for stage in stages))
    is_single = any(answer.get("BatchStrategy") == "SINGLE_RECORD" for answer in answers)
    return {
        "MaxConcurrentTransforms": min(_whole(answer, "MaxConcurrentTransforms", 1) for answer in answers),
        "MaxPayloadInMB": min(
            max(1, hop_limit_bytes // MEGABYTE), *(_whole(answer, "MaxPayloadInMB", 6) for answer in answers)
        ),
        **({"BatchStrategy": "SINGLE_RECORD"} if is_single else {}),
    }


async def _parameters(stage: Stage) -> Mapping[str, object]:
    try:
        reply = await get_async(LOOPBACK, stage.port, "/execution-parameters", ASK_SECONDS)
        answer = json.loads(reply.body)
    except (UpstreamError, ValueError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _whole(answer: Mapping[str, object], name: str, default: int) -> int:
    value = answer.get(name)
    return value if isinstance(value, int) else default
