"""The front of a run: its listeners, nginx and the translator, which stay while the stacks behind change."""

import logging
import re
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from tfs_proxy.run.host import sockets
from tfs_proxy.run.host.sockets import Listener, Listeners
from tfs_proxy.run.nginx import config as nginx
from tfs_proxy.run.nginx.many_models import MultiModelRoutes
from tfs_proxy.run.nginx.proxy import RELOAD_SECONDS, NginxProxy
from tfs_proxy.run.process import Backoff, ChildProcess, Children, Deaths, ProcessSpec, Tick
from tfs_proxy.run.run_loop import last_seconds
from tfs_proxy.settings.settings import Settings
from tfs_proxy.settings.worker_environment import TranslatorOptions, written
from tfs_proxy.values.deployment import BY_SCRIPT, OFF, Deployment
from tfs_proxy.values.layout import Workspace
from tfs_proxy.wire.routes import GRPC_SERVICES, ONE_ARCHIVE

log = logging.getLogger(__name__)

NO_NGINX = "no nginx in front, which is for development: a client that sends or reads slowly is waited for"
NO_NGINX_FOR_WORKERS = (
    " by a thread, there is no answer to /ping while all threads are busy, no fast path for JSON, no second "
    "try if a worker dies, and no gRPC but the Open Inference Protocol's"
)

TRANSLATOR = "tfs_proxy.worker.translator"
TRANSLATOR_BACKOFF: Final = Backoff(longest_seconds=0.2, tries=60)
"""All its calls fail without it, and it is up again in half a second."""


WORKER_DIED: Final = re.compile(r"\S+ \S+ \[alert\] \S+ worker process \d+ exited on signal ")
"""Line of nginx's master; the requests that such a worker had stay in nginx's own count."""


class Front(Children):
    """Listens on ``listeners``, by nginx if there is one; workers of one archive accept on ``web``."""

    def __init__(
        self,
        settings: Settings,
        workspace: Workspace,
        listeners: Listeners,
        environ: Mapping[str, str],
        deaths: Deaths,
        tick: Tick,
    ) -> None:
        self._settings = settings
        self._workspace = workspace
        self._environ = environ
        self._listeners = listeners
        self.web: tuple[Listener, ...] = ()
        super().__init__(deaths, tick)
        self.translator: ChildProcess | None = None
        self.nginx: ChildProcess | None = None
        self._grpc_sockets: Mapping[int, Path] = {}
        self._proxy: NginxProxy | None = None
        self._grpc_port: Listener | None = None  # held for the translator if there is no nginx
        self._lost_requests = False

    def in_start_order(self) -> list[ChildProcess]:
        return [child for child in (self.translator, self.nginx) if child is not None]

    def _is_down(self, child: ChildProcess) -> bool:
        # A 503 of /ping makes SageMaker replace the container, which serves all else without the translator.
        return super()._is_down(child) and child is not self.translator

    def _hear(self, name: str, line: str) -> None:
        super()._hear(name, line)
        self._lost_requests |= WORKER_DIED.match(line) is not None

    def in_flight(self, by_nginx: int) -> int:
        """Number of requests that clients wait for, which is ``by_nginx`` until a worker of it has died."""
        if not self._lost_requests:
            return by_nginx
        ports = [listener.getsockname()[1] for listener in self.public()]
        return min(by_nginx, sockets.connections(ports))

    @property
    def behind_nginx(self) -> bool:
        return self._proxy is not None

    @property
    def port(self) -> int:
        return int(self._listeners[0].getsockname()[1])

    @property
    def url(self) -> str:
        """The address for requests from this machine."""
        return sockets.local_url(self._listeners, self._settings.scheme)

    @property
    def reach(self) -> str:
        """The address, and who else can connect."""
        return f"{self.url}, {sockets.reach(self._listeners, with_key=self._settings.api_keys is not None)}"

    @property
    def takes_grpc(self) -> bool:
        return self._grpc_port is not None or (self._proxy is not None and bool(self._proxy.grpc_listeners))

    def open(self, kind: int, many_models: MultiModelRoutes | None) -> None:
        """Starts nginx if installed, else holds the gRPC port. Raises SettingsError for ports and files.

        ``kind`` is a column of `Route.answered_by`.
        """
        program = nginx.program(self._settings)
        if program is not None:
            if kind == ONE_ARCHIVE:
                servers = self._settings.instance_count * (2 if self._settings.reload else 1)
                self.web = (sockets.web_listener(self._settings.safe_port_range, servers),)
            self._proxy = NginxProxy(
                program, self._settings, self._workspace, self._listeners, self.web, kind, many_models
            )
            self.nginx = self.start(self._proxy.spec(self._environ))
        else:
            self.web = tuple(self._listeners)
            if self._settings.publishes_open_inference:
                self._grpc_port = sockets.hold_for_grpc(self._listeners[0], self._settings.grpc_port)
            log.warning("%s%s", NO_NGINX, NO_NGINX_FOR_WORKERS if kind == ONE_ARCHIVE else "")
            unused = {"EXTRA_PORTS": self._settings.extra_ports is not None, "GZIP": self._settings.gzip}
            for name in filter(unused.get, unused):
                log.warning("TFS_PROXY_%s has no effect without nginx", name)
        log.info("listening on %s", sockets.shown(self._listeners, self._settings.scheme))

    def start_translator(self, open_inference: str, servers: int, decoded_bytes: int) -> None:
        """Starts the process of the Open Inference Protocol over gRPC, which ``open_inference`` answers.

        There are so many model ``servers``; none if the script is the model. A request may take
        ``decoded_bytes`` of memory.
        Calls under way end before it does. Without nginx it takes clients' connections, too.
        """
        if not self.takes_grpc or open_inference == OFF:
            return
        settings = self._settings
        workspace = self._workspace
        listen = None if self._grpc_port is None else sockets.shown_address(self._grpc_port)
        options = TranslatorOptions(
            socket=str(workspace.translator_socket),
            control_socket=str(workspace.control_socket),
            gates=tuple(str(workspace.grpc_gate(index)) for index in range(servers)),
            message_bytes=settings.max_payload_bytes,
            answer_seconds=nginx.answer_seconds(settings),
            by_script=open_inference == BY_SCRIPT,
            decoded_bytes=decoded_bytes,
            # Without nginx nothing else answers.
            reflected=() if listen else GRPC_SERVICES,
            listen=listen,
        )
        spec = ProcessSpec(
            name="translator",
            argv=(sys.executable, "-m", TRANSLATOR, written(options)),
            # Any client can make gRPC itself log an error.
            env={"GRPC_VERBOSITY": "NONE", **self._environ},
            drops_output=True,
            backoff=TRANSLATOR_BACKOFF,
        )
        self.translator = self.start(spec)

    async def until_translator_listens(self) -> None:
        """Returns once the translator listens, if there is one."""
        if self.translator is not None:
            await sockets.until_it_listens(self._workspace.translator_socket)
        if self._grpc_port is not None:
            log.info("listening for gRPC on %s", sockets.shown_address(self._grpc_port))

    def begin_to_route_http(self, deployment: Deployment) -> Collection[int]:
        """Makes nginx send requests to what is deployed now; returns the pids of its former workers."""
        if self._proxy is None or self.nginx is None:
            return ()
        return self._proxy.begin_reload(self.nginx, deployment)

    async def follow_files(self) -> None:
        """Has nginx take up changed files of keys and TLS."""
        if (proxy := self._proxy) is not None and self.nginx is not None:
            await proxy.files.follow(lambda: proxy.configure(proxy.serving), self.nginx)

    async def until_nginx_drained(self, former: Collection[int], seconds: float = RELOAD_SECONDS) -> None:
        """Returns once nginx's former workers have finished their requests, or after so many seconds."""
        if self._proxy is not None and self.nginx is not None:
            await self._proxy.until_gone(self.nginx, former, seconds)

    def route_grpc(self, loaded: Collection[int], workspace: Workspace) -> None:
        """Sends gRPC calls only to those model servers of ``workspace`` that have their models.

        nginx reaches each by a link, which is there as long: it needs no reload.
        """
        if not self.takes_grpc:
            return
        ready = {index: workspace.grpc_socket(index) for index in loaded}
        for index in range(self._settings.instance_count):
            if ready.get(index) == self._grpc_sockets.get(index):
                continue
            gate = self._workspace.grpc_gate(index)
            if index not in ready:
                gate.unlink()
                continue
            new = gate.with_suffix(".new")
            new.symlink_to(ready[index])
            new.rename(gate)  # atomically: there is no moment without a gate for calls
        self._grpc_sockets = ready

    def public(self) -> list[Listener]:
        others = self._proxy.other_listeners if self._proxy is not None else []
        return [listener for listener in (*self._listeners, *others) if listener.fileno() >= 0]

    def close_public(self) -> None:
        """Stops accepting here; children that have the listeners may go on. Idempotent."""
        for listener in self._listeners:
            listener.close()
        if self._proxy is not None:
            self._proxy.close()

    async def stop(self, deadline: float) -> None:
        """Lets nginx and the translator finish their requests until ``deadline``, of `time.monotonic`."""
        if self.nginx is not None:
            await self.nginx.stop(deadline - time.monotonic())
        if self.translator is not None:
            await self.translator.stop(last_seconds(deadline))

    def close(self) -> None:
        for listener in self.web:
            listener.close()
        if self._grpc_port is not None:
            self._grpc_port.close()
