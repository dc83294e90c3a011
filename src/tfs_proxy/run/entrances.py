"""The sockets for requests: the public port, nginx if there is one, gRPC, and those of workers.

`run.run` opens them once; the models and workers behind them may change.
"""

import logging
from collections.abc import Collection, Mapping, Sequence

from tfs_proxy.run.children import Children
from tfs_proxy.run.grpc_routes import GrpcRoutes, InstanceGates
from tfs_proxy.run.host import sockets
from tfs_proxy.run.host.sockets import Listener
from tfs_proxy.run.nginx import config as nginx
from tfs_proxy.run.nginx.proxy import NginxProxy
from tfs_proxy.run.programs import grpc_router
from tfs_proxy.run.readiness import Readiness
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import ANY_MODEL, Deployment
from tfs_proxy.values.layout import Workspace

log = logging.getLogger(__name__)

NO_NGINX = (
    "no nginx in front: the workers listen on the port themselves, which is for development. A client that "
    "stalls holds a thread, there is no answer to /ping while all threads are busy, no fast path for JSON, "
    "and no second try if a worker dies"
)


class Entrances:
    """All sockets for requests of one run; workers may accept on ``web``."""

    def __init__(
        self, settings: Settings, workspace: Workspace, listener: Listener, environ: Mapping[str, str]
    ) -> None:
        self._settings, self._workspace, self._environ = settings, workspace, environ
        self._listener = listener
        self.web: tuple[Listener, ...] = (listener,)
        self._proxy: NginxProxy | None = None
        self.grpc_routes = GrpcRoutes()
        self._gates = InstanceGates(workspace, settings.instance_count)
        self._grpc_port: Listener | None = None  # held for the router if there is no nginx

    @property
    def behind_nginx(self) -> bool:
        return self._proxy is not None

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def open(self, children: Children) -> None:
        """Starts nginx if installed, else holds the gRPC port. Raises SettingsError for a port in use."""
        program = nginx.program(self._settings)
        if program is not None:
            self._start_nginx(program, children)
            return
        host = self._listener.getsockname()[0]
        self._grpc_port = sockets.hold_for_grpc(host, self._settings.grpc_port)
        log.warning("%s", NO_NGINX)
        if self._settings.extra_ports is not None:
            log.warning("TFS_PROXY_EXTRA_PORTS has no effect without nginx")

    def _start_nginx(self, program: str, children: Children) -> None:
        web = sockets.web_listener(self._settings.safe_port_range, self._settings.instance_count)
        self.web = (web,)
        self._proxy = NginxProxy(program, self._settings, self._workspace, self._listener, self.web)
        children.nginx = children.start(self._proxy.spec(self._environ))

    def start_grpc_router(self, children: Children, deployment: Deployment) -> None:
        """Starts the router that answers gRPC except TF Serving's calls, and those too without nginx."""
        if self._grpc_port is None and (self._proxy is None or self._proxy.grpc_listener is None):
            return
        spec = grpc_router.process(
            self._settings,
            self._workspace,
            nginx.answer_seconds(self._settings),
            self._environ,
            deployment,
            None if self._grpc_port is None else sockets.shown_address(self._grpc_port),
        )
        children.grpc_router = children.start(spec)

    async def listen_for_grpc(self) -> None:
        """Returns once the gRPC router listens."""
        await sockets.until_it_listens(self._workspace.grpc_router_socket)
        if self._grpc_port is not None:
            log.info("listening for gRPC on %s", sockets.shown_address(self._grpc_port))

    async def lead_http_to(self, children: Children, deployment: Deployment, web: Sequence[Listener]) -> None:
        """Makes nginx send requests to these workers and model servers; waits for nginx's former workers."""
        former = self.begin_leading_http_to(children, deployment, web)
        if self._proxy is not None and children.nginx is not None:
            await self._proxy.until_gone(children.nginx, former)

    def begin_leading_http_to(
        self, children: Children, deployment: Deployment, web: Sequence[Listener]
    ) -> Collection[int]:
        """The same without waiting; returns the pids of nginx's former workers, which end by themselves."""
        if self._proxy is None or children.nginx is None:
            return ()
        self._proxy.web = web
        return self._proxy.begin_reload(children.nginx, deployment)

    async def until_led_elsewhere(self, children: Children, former: Collection[int], seconds: float) -> None:
        """Returns once nginx's former workers have finished their requests, or after so many seconds."""
        if self._proxy is not None and children.nginx is not None:
            await self._proxy.until_gone(children.nginx, former, seconds)

    def lead_grpc_to(self, readiness: Readiness, workspace: Workspace) -> None:
        """Sends gRPC calls only to those model servers of ``workspace`` that are ready."""
        if self._grpc_port is not None or (self._proxy is not None and self._proxy.grpc_listener is not None):
            ready = {index: workspace.grpc_socket(index) for index in readiness.loaded()}
            self._gates.lead_to(ready)
            self.grpc_routes.lead([ANY_MODEL], ready.values())

    def public(self) -> list[Listener]:
        others = self._proxy.other_entrances if self._proxy is not None else []
        return [entrance for entrance in (self._listener, *others) if entrance.fileno() >= 0]

    def close_public(self) -> None:
        """Stops accepting here; children that have the listeners may go on. Idempotent."""
        self._listener.close()
        if self._proxy is not None:
            self._proxy.close()

    def close(self) -> None:
        for listener in self.web:
            listener.close()
        if self._grpc_port is not None:
            self._grpc_port.close()
