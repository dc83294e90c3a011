"""``python -m tfs_proxy.worker.streams OPTIONS``: the streams as a process, which the supervisor starts."""

import asyncio
import logging
import signal
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from http import HTTPMethod
from pathlib import Path
from typing import Final

from tfs_proxy.observe.logs.access import RequestLog
from tfs_proxy.observe.logs.entry import EntryHandler, LogConfig, set_level
from tfs_proxy.observe.logs.printed import print_to
from tfs_proxy.serving.plane import DataPlane
from tfs_proxy.serving.script.deadline import Lane, place_of
from tfs_proxy.serving.script.event_loop import LOOP_THREAD
from tfs_proxy.serving.script.handlers import ScriptCaller
from tfs_proxy.serving.script.load import load_script
from tfs_proxy.serving.script.script_model import ScriptModelCaller, load_script_model
from tfs_proxy.serving.script.streams import Message
from tfs_proxy.serving.upstream.binary import BinaryUpstream
from tfs_proxy.serving.upstream.for_deployment import ForDeployment
from tfs_proxy.serving.upstream.instances import fetch_deployment, report_streams, settled
from tfs_proxy.serving.upstream.recovery import Recovering
from tfs_proxy.settings.parsers import access_log
from tfs_proxy.settings.settings import inherited_environment
from tfs_proxy.settings.worker_environment import StreamOptions, read, worker_workspace
from tfs_proxy.values.deployment import BY_SCRIPT, Deployment, StreamReport
from tfs_proxy.values.errors import RequestError, ScriptLoadError, UpstreamError
from tfs_proxy.values.processes import end_group_at
from tfs_proxy.wire import media_types as media
from tfs_proxy.wire.error_body import error_body
from tfs_proxy.wire.header_names import REQUEST_ID
from tfs_proxy.wire.http_client import ConnectionPool, Timeouts
from tfs_proxy.wire.routes import INVOCATIONS
from tfs_proxy.worker.memory_ledger import MemoryLedger
from tfs_proxy.worker.streams.server import StreamServer
from tfs_proxy.worker.streams.stream import PROCESS, OpenStream, ScriptEnd

THREADS: Final = 64
"""Messages of all streams that are answered at a time."""

SERVER: Final = "The worker"
OF_THE_UPGRADE: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "origin",
        "te",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers of the request that opened a stream which say nothing about its messages."""


class Records:
    """Streams without a script's function: each message is a record, answered as `/invocations` answers it.

    It is a request to the workers at ``address``, HOST:PORT, so that limits, deadlines and the script's
    handlers are the same; it may take ``answer_seconds``.
    """

    def __init__(self, address: str, answer_seconds: float) -> None:
        host, _, port = address.rpartition(":")
        self._pool = ConnectionPool(host, int(port), Timeouts(answer_seconds), server=SERVER)

    async def serve(self, stream: OpenStream) -> None:
        """Answer the messages in their order, each once the one before is answered."""
        kept = {
            name: value
            for name, value in stream.request.headers.items()
            if name not in OF_THE_UPGRADE and not name.startswith("sec-websocket-")
        }
        given = {} if stream.request.content_type is None else {"Content-Type": stream.request.content_type}
        headers = {**kept, **given, REQUEST_ID.lower(): stream.record.request_id}
        while (message := await stream.receive()) is not None:
            if not await stream.send(await asyncio.to_thread(self._answer, message, headers)):
                return

    def close(self) -> None:
        self._pool.close()

    def _answer(self, message: Message, headers: Mapping[str, str]) -> Message:
        ask = partial(self._pool.request, HTTPMethod.POST.value, INVOCATIONS.path)
        # The type, unless the client names another one.
        kind, body = media.BYTES, message if isinstance(message, bytes) else message.encode()
        if isinstance(message, str):
            kind = media.JSON if message.lstrip()[:1] in {"{", "["} else media.CSV
        try:
            answer = ask(body, {"Content-Type": kind, **headers})
        except UpstreamError as error:
            return error_body(str(error)).decode()
        with suppress(UnicodeDecodeError):
            return answer.body.decode() if is_text(answer.header("Content-Type")) else answer.body
        return answer.body


def is_text(content_type: str | None) -> bool:
    """True if an answer of this type is sent as a text message."""
    name = (content_type or media.JSON).partition(";")[0].strip().lower()
    return name.startswith("text/") or name.endswith(("json", "jsons", "jsonlines"))


REPORT_SECONDS: Final = 1.0
LEAST_SECONDS: Final = 0.05
"""Pause between two reports while streams begin and end."""

BOOT_FAILED: Final = 3

log = logging.getLogger("tfs_proxy.worker.streams")


def main(options: StreamOptions) -> int:
    """Serve until SIGTERM; returns the exit status, `BOOT_FAILED` if the script can't be loaded."""
    end_group_at(signal.SIGQUIT)
    handler = EntryHandler(LogConfig.inherited(inherited_environment()), lambda: PROCESS)
    logging.getLogger().handlers = [handler]
    set_level(options.log_level)
    print_to(handler)
    deployment = fetch_deployment(Path(options.control_socket))
    try:
        answering = _answering(deployment, options)
    except ScriptLoadError as error:
        log.error("%s", "\n".join(filter(None, (error.report, str(error)))))  # noqa: TRY400 - it has its own
        return BOOT_FAILED
    try:
        return asyncio.run(_serve_until_stopped(options, deployment, answering))
    finally:
        answering.close()


class ByScript:
    """Streams that the script's ``stream`` serves."""

    def __init__(self, script: ScriptCaller | ScriptModelCaller) -> None:
        """Call the script's ``init``, or load its model. Raises ScriptLoadError."""
        script.begin()
        self._script, self.close = script, script.close

    async def serve(self, stream: OpenStream) -> RequestError | None:
        """Return once the function has ended, also if it is cancelled meanwhile."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        serving = self._script.begin_stream(
            stream.request, ScriptEnd(stream, loop), partial(loop.call_soon_threadsafe, ended.set)
        )
        try:
            return await asyncio.wrap_future(serving)
        except asyncio.CancelledError:
            await ended.wait()
            return None


def _answering(deployment: Deployment, options: StreamOptions) -> Records | ByScript:
    """Raises ScriptLoadError if the script has to serve, and can't be loaded."""
    path, import_paths = deployment.script or "", deployment.import_paths
    if deployment.streams != BY_SCRIPT:
        return Records(options.workers, options.answer_seconds)
    if deployment.script_model is not None:
        return ByScript(ScriptModelCaller(load_script_model(path, import_paths), deployment))
    servers = BinaryUpstream(deployment.instances, deployment.times.request_seconds)
    recovering = Recovering(servers, partial(settled, Path(options.control_socket)), deployment.times)
    plane = DataPlane(ForDeployment(recovering, deployment), deployment.csv_columns)
    return ByScript(ScriptCaller(load_script(path, import_paths), plane, deployment))


async def _serve_until_stopped(
    options: StreamOptions, deployment: Deployment, answering: Records | ByScript
) -> int:
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="stream-record"))
    access = RequestLog(access_log(deployment.observation.access_log))

    def place() -> str:
        thread = next((each for each in threading.enumerate() if each.name == LOOP_THREAD), None)
        frames = () if thread is None else Lane(thread.ident).frames()
        return place_of(frames, deployment.script_folder)

    ledger = MemoryLedger(worker_workspace().memory_ledger, deployment.bodies.decoded_bytes, 0)
    streams = StreamServer(options, answering.serve, ledger, access, deployment.default_model, place)
    server = await streams.listen()
    reporting = asyncio.create_task(_keep_reporting(streams, options))
    await stopping.wait()
    await streams.drain(server)
    reporting.cancel()
    await _report(streams.report(), options)
    return 0


async def _keep_reporting(streams: StreamServer, options: StreamOptions) -> None:
    """Report when streams begin and end, and messages once a second."""
    while True:
        streams.changed.clear()
        await _report(streams.report(), options)
        await asyncio.sleep(LEAST_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(REPORT_SECONDS):
                await streams.changed.wait()


async def _report(report: StreamReport, options: StreamOptions) -> None:
    try:
        await asyncio.to_thread(report_streams, Path(options.control_socket), report)
    except UpstreamError as error:
        log.debug("the supervisor does not hear of streams: %s", error)


if __name__ == "__main__":
    sys.exit(main(read(StreamOptions, sys.argv[1])))
