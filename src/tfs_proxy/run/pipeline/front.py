"""The front of a pipeline: nginx receives requests, and a server in this process answers complete ones.

Without nginx that server listens on the port itself, for development: it does not limit slow clients.
"""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from tfs_proxy.run.guarded import guard_of, guarded
from tfs_proxy.run.host import sockets
from tfs_proxy.run.host.sockets import Listeners
from tfs_proxy.run.nginx import config
from tfs_proxy.run.nginx.proxy import nginx_process
from tfs_proxy.run.pipeline.endpoint import PipelineEndpoint
from tfs_proxy.run.process import ChildProcess
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import Overloaded
from tfs_proxy.values.layout import Workspace
from tfs_proxy.values.resources import available_resources, most_descriptors
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES
from tfs_proxy.wire.http_server import HttpServer, app_of

log = logging.getLogger(__name__)

MORE_SECONDS = 5
"""Seconds that nginx waits beyond the limit of a request through all stages."""

COPIES = 2
"""A body is in memory twice: as it arrives, and as the request's."""

WAIT_SECONDS = 5.0
NO_NGINX = "no nginx in front: a client that sends or reads slowly is waited for. This is for development"


class PipelineFront:
    """Answers by ``endpoint`` on ``listeners``."""

    def __init__(
        self,
        settings: Settings,
        workspace: Workspace,
        listeners: Listeners,
        environ: Mapping[str, str],
        endpoint: PipelineEndpoint,
    ) -> None:
        self._settings, self._workspace, self._listeners = settings, workspace, listeners
        self._environ = environ
        app = app_of(
            endpoint.respond,
            settings.max_payload_bytes,
            refused=endpoint.refused,
            held=BodyMemory(settings.max_decoded_total_bytes).held,
            only_once=CUSTOM_ATTRIBUTES,
        )
        self._program = config.find() if settings.nginx else None
        self._server = HttpServer(app if self._program else guarded(app, guard_of(settings)))
        self.nginx: ChildProcess | None = None

    async def open(self) -> None:
        """Listens; nginx must be started afterwards, if there is one."""
        if self._program is None:
            log.warning("%s", NO_NGINX)
            await self._server.open(self._listeners)
            return
        await self._server.open_unix(self._workspace.client_socket)
        home = self._workspace.nginx
        home.mkdir()
        (home / "nginx.conf").write_text(nginx_config(self._settings, self._workspace, self._listeners))
        spec = nginx_process(self._program, home, self._listeners, self._environ)
        self.nginx = ChildProcess(spec)

    def close(self) -> None:
        """Stops accepting here: only nginx uses the listeners."""
        if self.nginx is None:
            self._server.close()
        for listener in self._listeners:
            listener.close()

    async def drain(self, seconds: float) -> None:
        """Stops accepting, and waits at most ``seconds`` for requests under way."""
        deadline = asyncio.get_running_loop().time() + seconds
        if self.nginx is not None:
            await self.nginx.stop(seconds)
        await self._server.drain(deadline - asyncio.get_running_loop().time())


def nginx_config(settings: Settings, workspace: Workspace, listeners: Listeners) -> str:
    cores = available_resources().cores
    listen, *others = map(sockets.shown_address, listeners)
    proxy = config.ProxyConfig(
        listen,
        (),
        workspace.client_socket,
        free_bytes=shutil.disk_usage(workspace.nginx).free,
        connections=config.most_connections(cores, most_descriptors()),
        processes=min(cores, config.MOST_PROCESSES),
        also_listen=tuple(others),
    )
    read_seconds = int(settings.request_timeout_seconds) + MORE_SECONDS
    return config.pipeline_config(proxy, settings, workspace, read_seconds)


class BodyMemory:
    """Limits the bytes that bodies of all requests take together."""

    def __init__(self, limit_bytes: int, wait_seconds: float = WAIT_SECONDS) -> None:
        self._limit_bytes, self._wait_seconds = limit_bytes, wait_seconds
        self._held_bytes = 0
        self._freed = asyncio.Condition()

    @asynccontextmanager
    async def held(self, body_bytes: int) -> AsyncIterator[None]:
        """Holds a body's memory while the block runs. Raises Overloaded if none becomes free."""
        size_bytes = min(COPIES * body_bytes, self._limit_bytes)
        try:
            async with asyncio.timeout(self._wait_seconds), self._freed:
                await self._freed.wait_for(lambda: self._held_bytes + size_bytes <= self._limit_bytes)
                self._held_bytes += size_bytes
        except TimeoutError:
            raise Overloaded(
                "Other large requests have the memory that this one needs: try again. "
                "TFS_PROXY_MAX_DECODED_TOTAL_MB sets how much all together may take."
            ) from None
        try:
            yield
        finally:
            self._held_bytes -= size_bytes
            async with self._freed:
                self._freed.notify_all()
