"""One request through all stages: what each gets, what becomes of the answers, and what an error says."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tfs_proxy.pipeline.http_server import Asked
from tfs_proxy.pipeline.stage_client import Hop, StageFailed
from tfs_proxy.wire.http_answer import Reply as StageReply
from tfs_proxy.wire.http_server import Reply

PLATFORM = "x-amzn-sagemaker-"
"""Headers of this kind are the contract's: every stage gets the caller's, the caller the last stage's."""

OF_THE_BODY = ("content-type", "content-encoding")
ASKS_LATENCY = "x-tfs-proxy-stage-latency"
FAILED_DEPENDENCY, TOO_LARGE = 424, 413
MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ChainLimits:
    """Seconds that a request may take through all stages, and bytes that go from one to the next."""

    seconds: float
    hop_bytes: int


@dataclass(slots=True)
class _Passage:
    """How far one request has come: the body and headers for the next stage, and milliseconds so far."""

    body: bytes
    headers: Mapping[str, str]
    milliseconds: list[tuple[int, float]] = field(default_factory=list)

    @property
    def timing(self) -> str:
        """The value of a Server-Timing header."""
        return ", ".join(f"stage{place};dur={spent:.2f}" for place, spent in self.milliseconds)


class Chain:
    """Passes requests from stage to stage."""

    def __init__(self, hops: Sequence[Hop], limits: ChainLimits) -> None:
        self._hops = hops
        self._limits = limits

    async def invoke(self, asked: Asked) -> Reply:
        """The last stage's answer, or a 424 that names the stage that failed (contract 1.8).

        With a header ``X-Tfs-Proxy-Stage-Latency`` the answer has the stages' times as Server-Timing.
        """
        passage = _Passage(asked.body, _of(asked.headers, OF_THE_BODY))
        try:
            last = await self._pass(asked, passage)
            reply = Reply(
                last.status, last.body, content_type=_type_of(last), headers=_platform_headers(last)
            )
        except StageFailed as failed:
            reply = Reply(FAILED_DEPENDENCY, _error_body(failed))
        if ASKS_LATENCY not in asked.headers:
            return reply
        timing = ("Server-Timing", passage.timing)
        return Reply(
            reply.status, reply.body, content_type=reply.content_type, headers=(*reply.headers, timing)
        )

    async def _pass(self, asked: Asked, passage: _Passage) -> StageReply:
        """Through every stage; the last one's answer."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._limits.seconds
        platform = {name: value for name, value in asked.headers.items() if name.startswith(PLATFORM)}
        *others, last = self._hops
        for hop in others:
            reply = await self._ask(hop, passage, platform, deadline - clock())
            if len(reply.body) > self._limits.hop_bytes:
                raise self._too_large(hop, len(reply.body))
            passage.body, passage.headers = reply.body, {"content-type": _type_of(reply)}
        accept = _of(asked.headers, ("accept",))
        return await self._ask(last, passage, {**platform, **accept}, deadline - clock())

    async def _ask(
        self, hop: Hop, passage: _Passage, headers: Mapping[str, str], seconds: float
    ) -> StageReply:
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            return await hop.ask(passage.body, {**passage.headers, **headers}, seconds)
        finally:
            passage.milliseconds.append((hop.stage.place, 1000 * (clock() - began)))

    def _too_large(self, hop: Hop, size: int) -> StageFailed:
        said = (
            f"its answer has {size / MEGABYTE:.1f} MB, and at most {self._limits.hop_bytes / MEGABYTE:g} MB "
            "go on to the next stage (TFS_PROXY_HOP_LIMIT_MB)"
        )
        hop.counts.refused += 1
        return hop.failed("answered too much", TOO_LARGE, said)


def _of(headers: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    return {name: headers[name] for name in names if name in headers}


def _type_of(reply: StageReply) -> str:
    named = (value for name, value in reply.headers.items() if name.lower() == "content-type")
    return next(named, "application/octet-stream")


def _platform_headers(reply: StageReply) -> tuple[tuple[str, str], ...]:
    return tuple(pair for pair in reply.headers.items() if pair[0].lower().startswith(PLATFORM))


def _error_body(failed: StageFailed) -> bytes:
    """The one shape of an error, with the two fields that SageMaker's ModelError has (contract 1.4)."""
    return json.dumps(
        {"error": str(failed), "OriginalStatusCode": failed.status, "OriginalMessage": failed.said}
    ).encode()
