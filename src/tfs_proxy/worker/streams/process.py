"""The process of streams, from its log and its script to the drain at SIGTERM."""

import asyncio
import logging
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
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
from tfs_proxy.serving.upstream.binary import BinaryUpstream
from tfs_proxy.serving.upstream.for_deployment import ForDeployment
from tfs_proxy.serving.upstream.instances import fetch_deployment, report_streams, settled
from tfs_proxy.serving.upstream.recovery import Recovering
from tfs_proxy.settings.parsers import access_log
from tfs_proxy.settings.settings import inherited_environment
from tfs_proxy.settings.worker_environment import StreamOptions, worker_workspace
from tfs_proxy.values.deployment import BY_SCRIPT, Deployment, StreamReport
from tfs_proxy.values.errors import RequestError, ScriptLoadError, UpstreamError
from tfs_proxy.values.processes import end_group_at
from tfs_proxy.worker.memory_ledger import MemoryLedger
from tfs_proxy.worker.streams.records import THREADS, Records
from tfs_proxy.worker.streams.server import StreamServer
from tfs_proxy.worker.streams.stream import PROCESS, OpenStream, ScriptEnd

REPORT_SECONDS: Final = 1.0
LEAST_SECONDS: Final = 0.05
"""Pause between two reports while streams begin and end."""

BOOT_FAILED: Final = 3

log = logging.getLogger(__name__)


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
    upstream = ForDeployment(Recovering(servers, partial(settled, Path(options.control_socket))), deployment)
    plane = DataPlane(upstream, deployment.csv_columns)
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

    ledger = MemoryLedger(worker_workspace().memory_ledger, deployment.bodies.decoded_total_bytes, 0)
    streams = StreamServer(options, answering.serve, ledger, access, deployment.default_model, place)
    server = await streams.open()
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
