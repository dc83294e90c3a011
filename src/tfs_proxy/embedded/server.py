"""Runs the embedded model server: from flags to the servable lifecycle and the servers of REST and gRPC."""

import asyncio
import contextlib
import importlib.metadata
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha.reflection import enable_server_reflection
from uvloop import new_event_loop

import tfs_proxy
from tfs_proxy.embedded import model_config
from tfs_proxy.embedded.core.catalog import Catalog
from tfs_proxy.embedded.core.metrics import Metrics
from tfs_proxy.embedded.core.process_ledger import ProcessLedger
from tfs_proxy.embedded.errors import ServingError
from tfs_proxy.embedded.flags import ModelServerFlags, parse, usage
from tfs_proxy.embedded.grpc_server import (
    SERVICE,
    GrpcioServer,
    Health,
    channel_arguments,
    credentials,
    on_socket_only,
)
from tfs_proxy.embedded.grpc_services import Handlers, Services
from tfs_proxy.embedded.lifecycle import Retry, ServableLifecycle
from tfs_proxy.embedded.loader import Loader
from tfs_proxy.embedded.rest.app import RestApp
from tfs_proxy.embedded.rest.server import RestServer, rest_options
from tfs_proxy.values.errors import SettingsError, StopServing
from tfs_proxy.values.resources import available_resources, raise_descriptor_limit
from tfs_proxy.wire.grpc_serving import REFLECTION, reflected_pool
from tfs_proxy.wire.shortages import ending

log = logging.getLogger(__name__)

_POLL_SECONDS = 1.0
"""Time between two looks for versions, as the official server's default."""

_CUT_OFF_SECONDS = 1.0
"""Limit of computations and loads, which nothing stops: if one goes on for this long after the last request
is answered, the process ends with it."""
_ONE_SIGNAL_SECONDS = 0.1
"""Signals so close together are one: ``timeout`` sends it to the process, and again to its group."""
_LOOK_SECONDS = 0.01
_THREADS_PER_CORE = 4
_THREADS = 32
"""Least number of threads, so that a few slow requests leave threads for the status of models."""
_BATCHED_THREADS = 128
"""Threads with batching: a request waits for others, which need threads of their own to arrive on."""


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if {"--help", "-h"} & set(argv):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a pager that ends early is no error
        print(usage())  # noqa: T201
        return 0
    try:
        flags, remarks = parse(argv)
        if flags.version:
            print(_versions())  # noqa: T201
            return 0
        for remark in remarks:
            log.warning("%s", remark)
        few_descriptors = raise_descriptor_limit()
        if few_descriptors:
            log.warning("%s", few_descriptors)
        return Server(flags).run()
    except (StopServing, OSError, RuntimeError) as error:
        end = ending(error)
        print(end, file=sys.stderr)  # noqa: T201
        return end.exit_status


def _versions() -> str:
    server = f"TensorFlow ModelServer: 2.20.0 (embedded, tfs-proxy {tfs_proxy.__version__})"
    for name in ("tensorflow-cpu", "tensorflow"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return f"{server}\nTensorFlow Library: {importlib.metadata.version(name)}"
    return server


class Server:
    """The servable lifecycle and the servers of REST and gRPC of one run."""

    def __init__(self, flags: ModelServerFlags) -> None:
        self._flags = flags
        self._metrics = Metrics()
        self._ledger = ProcessLedger()
        self._loader = Loader(flags, self._metrics)
        cores = available_resources().cores
        self._catalog = Catalog()
        self._health = Health(self._catalog)
        self._lifecycle = ServableLifecycle(
            self._catalog,
            self._loader,
            retry=Retry(max(0, flags.max_num_load_retries)),
            load_threads=cores,
            labels_for_unavailable=flags.allow_version_labels_for_unavailable_models,
        )
        waiting = _BATCHED_THREADS if flags.enable_batching else max(_THREADS_PER_CORE * cores, _THREADS)
        self._rest_threads = flags.rest_api_num_threads or waiting
        self._grpc_threads = flags.grpc_max_threads or waiting
        self._rest_options = rest_options(flags)
        self._stopping = threading.Event()

    def run(self) -> int:
        """Serve until a signal; returns 0. Raises StopServing if it can't start."""
        with ThreadPoolExecutor(self._grpc_threads, thread_name_prefix="grpc") as threads:
            self._serve_on(threads)
        return 0

    def _serve_on(self, threads: ThreadPoolExecutor) -> None:
        sources = model_config.from_flags(self._flags)
        rest_port = self._bind()
        flags = self._flags
        host = f"[{flags.host}]" if ":" in flags.host else flags.host
        addresses = [f"{host}:{flags.port}"] if flags.port else []
        if flags.grpc_socket_path:
            addresses.append(f"unix:{flags.grpc_socket_path}")
        handlers = Services(self._catalog, self._lifecycle, self._metrics, self._ledger).handlers()
        if flags.management_on_socket_only:
            handlers = on_socket_only(handlers)
        grpc_running = GrpcioServer(
            handlers,
            self._other_services(handlers),
            addresses,
            threads,
            channel_arguments(flags.grpc_channel_arguments),
            credentials(flags.ssl_config_file),
        )
        for address in addresses:
            log.info("Running gRPC ModelServer at %s ...", address)
        try:
            self._lifecycle.reload(sources)
        except ServingError as error:
            raise SettingsError(f"Failed to start server. Error: {error.code.name}: {error.text}") from error
        self._background(self._poll_folders)
        self._background(self._poll_config)
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self._serve(rest_port, grpc_running))
        finally:
            self._stopping.set()
            grpc_running.close()
            self._lifecycle.close()

    def _bind(self) -> socket.socket | None:
        """The port of REST, on which nothing listens yet."""
        flags = self._flags
        if not flags.rest_api_port:
            return None
        bound = socket.socket(socket.AF_INET6 if ":" in flags.host else socket.AF_INET)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((flags.host, flags.rest_api_port))
        except OSError as error:
            raise SettingsError(f"Can't listen on {flags.host}:{flags.rest_api_port}: {error}") from error
        return bound

    def _other_services(self, handlers: Handlers) -> Iterator[Callable[[Any], None]]:
        """Adds grpcio's own services to a server; the official binary has reflection linked in, too."""
        names = [*handlers, REFLECTION]
        if self._flags.enable_grpc_healthcheck_service:
            self._background(self._health.follow)
            names.append(SERVICE)
            yield partial(add_HealthServicer_to_server, self._health)
        yield partial(enable_server_reflection, names, pool=reflected_pool())

    def _background(self, work: Any) -> None:
        threading.Thread(target=work, daemon=True, name=work.__name__).start()

    def _poll_folders(self) -> None:
        while not self._stopping.wait(_POLL_SECONDS):
            self._lifecycle.poll()

    def _poll_config(self) -> None:
        path = self._flags.model_config_file
        seconds = self._flags.model_config_file_poll_wait_seconds
        while path and seconds > 0 and not self._stopping.wait(seconds):
            try:
                sources = model_config.again_from_file(path)
                with self._lifecycle.turn():
                    self._lifecycle.reload(sources)
            except (SettingsError, ServingError) as error:
                log.warning("Keeping the previous configuration, since %s cannot be used: %s", path, error)

    async def _serve(self, rest_port: socket.socket | None, grpc_running: GrpcioServer) -> None:
        """Serve until a signal, then until nothing is in flight; SIGINT then cuts off what still is."""
        signals: asyncio.Queue[int] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, signals.put_nowait, number)
        with ThreadPoolExecutor(self._rest_threads, thread_name_prefix="rest") as pool:
            rest = serving = None
            if rest_port is not None:
                app = RestApp(self._catalog, pool, self._metrics, self._ledger, self._rest_options)
                rest = RestServer(app)
                serving = asyncio.create_task(self._serve_rest(rest, rest_port))
                serving.add_done_callback(lambda _: signals.put_nowait(signal.SIGTERM))  # if it can't listen
            await signals.get()
            self._lifecycle.stop()
            self._background(self._health.close)  # a client that reads nothing would hold up the loop
            answered = asyncio.create_task(grpc_running.drain())
            if rest:
                rest.stop()
            impatient = asyncio.create_task(_cut_off_at(signals, grpc_running, rest))
            if serving:
                await serving
            await answered
            impatient.cancel()
            _end_soon()

    async def _serve_rest(self, rest: RestServer, port: socket.socket) -> None:
        """Listen once the first models are loaded: a proxy in front takes another server until then."""
        while self._catalog.starting and not rest.should_exit:  # noqa: ASYNC110 (a thread sets the former)
            await asyncio.sleep(_LOOK_SECONDS)
        if not rest.should_exit:
            log.info("Exporting HTTP/REST API at:%s:%d ...", *port.getsockname()[:2])
            await rest.serve([port, *(port.dup() for _ in range(7))])  # uvloop accepts one a turn from each


async def _cut_off_at(
    signals: "asyncio.Queue[int]", grpc_running: GrpcioServer, rest: RestServer | None
) -> None:
    """Close all connections at one more SIGINT, and end the process if TensorFlow still computes."""
    await asyncio.sleep(_ONE_SIGNAL_SECONDS)
    while not signals.empty():
        signals.get_nowait()
    while await signals.get() != signal.SIGINT:  # `docker stop` sends SIGTERM each time it is typed
        pass
    log.warning("SIGINT: cutting off the requests that are still in flight.")
    _end_soon()
    if rest:
        rest.force_exit = True
    await grpc_running.cut_off()


def _end_soon() -> None:
    """End the process shortly, unless it ends by itself before."""
    end = threading.Timer(_CUT_OFF_SECONDS, os._exit, (0,))
    end.daemon = True
    end.start()
