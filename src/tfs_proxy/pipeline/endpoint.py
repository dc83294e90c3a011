"""What the one address of a pipeline answers: /ping, /invocations and /execution-parameters."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence

from tfs_proxy.pipeline import readiness
from tfs_proxy.pipeline.chain import Chain
from tfs_proxy.pipeline.http_server import Asked
from tfs_proxy.pipeline.stage import Stage
from tfs_proxy.wire.http_server import Reply

OK, NOT_FOUND, NOT_ALLOWED, UNAVAILABLE = 200, 404, 405, 503
NOTHING_HERE = "there is nothing at this path: POST goes to /invocations, GET to /ping"
ALMOST = "starting: all stages are ready, the pipeline is about to be"

Answer = Callable[[Asked], Awaitable[Reply]]


class Endpoint:
    """Routes requests; ``ready`` is set once every stage has been."""

    def __init__(self, stages: Sequence[Stage], chain: Chain, hop_limit_bytes: int) -> None:
        self.ready = False
        self._stages = stages
        self._chain = chain
        self._hop_limit_bytes = hop_limit_bytes
        self._routes: Mapping[str, tuple[str, Answer]] = {
            "/ping": ("GET", self._ping),
            "/invocations": ("POST", self._invoke),
            "/execution-parameters": ("GET", self._parameters),
        }

    async def respond(self, asked: Asked) -> Reply:
        """Answer one request."""
        if asked.path not in self._routes:
            return Reply.error(NOT_FOUND, NOTHING_HERE)
        method, answer = self._routes[asked.path]
        if asked.method != method and (method, asked.method) != ("GET", "HEAD"):
            return Reply.error(NOT_ALLOWED, f"{asked.method} is not allowed here, but {method}", allow=method)
        return await answer(asked)

    async def _ping(self, _: Asked) -> Reply:
        """200 where all stages say so, else 503 that names each that does not (contract 1.8)."""
        found = await readiness.faults(self._stages)
        if found or not self.ready:
            return Reply.error(UNAVAILABLE, "; ".join(found) or ALMOST)
        return Reply(OK)

    async def _parameters(self, _: Asked) -> Reply:
        found = await readiness.execution_parameters(self._stages, self._hop_limit_bytes)
        return Reply(OK, json.dumps(found).encode())

    async def _invoke(self, asked: Asked) -> Reply:
        if not self.ready:
            found = "; ".join(await readiness.faults(self._stages))
            return Reply.error(UNAVAILABLE, found or ALMOST)
        return await self._chain.invoke(asked)
