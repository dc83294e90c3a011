"""One request to one stage: pooled connections, and what went wrong in words that name the stage."""

import asyncio
import json
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from tfs_proxy.errors import NotReached, RequestError, UpstreamError, UpstreamTimeout
from tfs_proxy.latencies import Latencies
from tfs_proxy.pipeline.stage import Stage
from tfs_proxy.supervisor.host.sockets import LOOPBACK
from tfs_proxy.wire.connections import Connections, Timeouts
from tfs_proxy.wire.http_answer import Reply

INVOCATIONS = "/invocations"
LONGEST_WORDS = 2048
"""Characters of a stage's own words that reach the client, as in OriginalMessage (contract 1.4)."""

UNAVAILABLE, TIMED_OUT = 503, 504
SUCCESSES = range(200, 300)


class StageFailed(RequestError):
    """A stage of a pipeline gave no answer to go on with.

    ``status`` is what it answered, or would have; ``said`` its own words.
    """

    def __init__(self, text: str, status: int, said: str) -> None:
        super().__init__(text)
        self.status = status
        self.said = said


@dataclass(slots=True)
class Counts:
    """Requests that went wrong at one stage.

    ``refused`` ones it answered with an error, or with more than may go on to the next stage;
    ``unanswered`` ones it got and did not answer; ``not_reached`` ones it never got.
    """

    refused: int = 0
    unanswered: int = 0
    not_reached: int = 0


class Hop:
    """Asks one stage; ``latencies`` are those of its answers, ``counts`` says what became of the rest."""

    def __init__(self, stage: Stage, threads: Executor, timeout_seconds: float) -> None:
        self.stage = stage
        self.latencies = Latencies()
        self.counts = Counts()
        self._threads = threads
        self._connections = Connections(LOOPBACK, stage.port, Timeouts(timeout_seconds))

    async def ask(self, body: bytes, headers: Mapping[str, str], seconds: float) -> Reply:
        """The stage's answer; raises StageFailed if there is none, or it is an error."""
        reply = await self._exchange(body, headers, seconds)
        if reply.status not in SUCCESSES:
            self.counts.refused += 1
            raise self.failed(f"answered {reply.status}", reply.status, words_of(reply.body))
        return reply

    async def _exchange(self, body: bytes, headers: Mapping[str, str], seconds: float) -> Reply:
        """Whatever the stage answers; its library's errors become StageFailed here."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        send = partial(self._connections.request, "POST", INVOCATIONS, body, headers, max(seconds, 0.001))
        try:
            reply = await loop.run_in_executor(self._threads, send)
        except UpstreamTimeout as error:
            self.counts.unanswered += 1
            raise self.failed("did not answer", TIMED_OUT, "the time for the request is over") from error
        except NotReached as error:
            self.counts.not_reached += 1
            raise self.failed("can't be reached", UNAVAILABLE, "it is down, or being restarted") from error
        except UpstreamError as error:
            self.counts.unanswered += 1
            raise self.failed("gave no answer", UNAVAILABLE, "the connection to it broke") from error
        self.latencies.add(loop.time() - began)
        return reply

    def failed(self, how: str, status: int, said: str) -> StageFailed:
        """What to raise: how it failed, and what it said."""
        return StageFailed(f"{self.stage.name} {how}: {said}", status, said)

    def close(self) -> None:
        """Close its connections."""
        self._connections.close()


def words_of(body: bytes) -> str:
    """What an error's body says: the text under ``error``, else the body itself; of limited length."""
    text = body.decode(errors="replace")
    try:
        error = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        error = None
    words = error if isinstance(error, str) else text
    return words if len(words) <= LONGEST_WORDS else f"{words[:LONGEST_WORDS]}..."
