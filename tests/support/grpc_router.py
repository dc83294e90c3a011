"""The gRPC router as a process of its own, without a supervisor but for the table that it follows."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import grpc

from support.grpc_calls import PREDICT, SECONDS
from tfs_proxy.run.grpc_routes import GrpcRoutes
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse
from tfs_proxy.wire.http_server import HttpServer, app_of
from tfs_proxy.wire.routes import answer_by


class Router:
    """The router as a process, with a table of the models of the tests; ``more`` are options."""

    def __init__(self, folder: Path, **more: object) -> None:
        self.socket = folder / "router.sock"
        self._began: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(folder / "control.sock")))
        self._thread.start()
        self._loop = self._began.result(SECONDS)
        places = {"control_socket": folder / "control.sock", "requests": folder / "requests"}
        options: dict[str, object] = {
            "message_bytes": 1 << 20,
            "wait_seconds": 5,
            "answer_seconds": SECONDS,
            "loads": True,
        }
        options |= {"open_inference": "model", "decoded_bytes": 1 << 30}
        word = json.dumps({"socket": self.socket, **places, **options, **more}, default=str)
        self.log = folder / "router.log"
        with self.log.open("wb") as log:
            command = [sys.executable, "-m", "tfs_proxy.worker.router", word]
            self.process = subprocess.Popen(command, stderr=log)
        self.channel = grpc.insecure_channel(f"unix:{self.socket}")
        grpc.channel_ready_future(self.channel).result(SECONDS)
        self.call = self.channel.unary_unary(PREDICT)

    async def _serve(self, socket: Path) -> None:
        self._routes, self._ended = GrpcRoutes(), asyncio.Event()
        server = HttpServer(app_of(self._answer, 1 << 16))
        await server.open_unix(socket)
        self._began.set_result(asyncio.get_running_loop())
        await self._ended.wait()
        await server.drain(SECONDS)

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        return await answer_by(self._routes.routes, request) or HttpResponse.error(
            503, "there is no supervisor here"
        )

    def _do(self, change: Callable[[], None]) -> None:
        """Change the table, and wait until the router has it."""

        async def done() -> None:
            change()
            await self._routes.until_idle((), SECONDS)

        asyncio.run_coroutine_threadsafe(done(), self._loop).result(SECONDS)

    def lead(self, *models: str, to: tuple[Path, ...]) -> None:
        """Send calls for these models to these sockets."""
        self._do(lambda: self._routes.route(models, to))

    def forget(self, model: str) -> None:
        """Unload a model."""
        self._do(lambda: self._routes.forget([model]))

    def idle(self, model: str, seconds: float) -> bool:
        """Whether no call for a model is in flight within so many seconds."""
        began = time.monotonic()
        waiting = self._routes.until_idle([model], seconds)
        asyncio.run_coroutine_threadsafe(waiting, self._loop).result(SECONDS)
        return time.monotonic() - began < seconds

    def descriptors(self) -> int:
        """How many files it has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def close(self) -> None:
        """End it, as the supervisor does."""
        self.channel.close()
        self.process.terminate()
        assert self.process.wait(SECONDS) == 0
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
