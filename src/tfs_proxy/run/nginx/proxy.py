"""nginx in front: its listeners, its process and the configuration of each phase."""

import asyncio
import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence

from tfs_proxy.run.host import sockets
from tfs_proxy.run.host.processes import child_pids
from tfs_proxy.run.host.sockets import Listener, Listeners
from tfs_proxy.run.nginx import config as nginx
from tfs_proxy.run.nginx.front_files import FrontFiles
from tfs_proxy.run.nginx.many_models import MultiModelRoutes
from tfs_proxy.run.process import ChildProcess, ProcessSpec
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import Deployment, Instance
from tfs_proxy.values.layout import Workspace
from tfs_proxy.values.processes import has_ended
from tfs_proxy.values.resources import available_resources, most_descriptors

log = logging.getLogger(__name__)

VERSION_SECONDS = 10.0
RELOAD_SECONDS = 2.0
RELOAD_PAUSE_SECONDS = 0.005


class NginxProxy:
    """nginx on ``listeners`` and the extra ports, in front of workers that accept on ``web``.

    gRPC has a listener of its own. Only one archive has ``web``, and another configuration after the start.
    """

    def __init__(
        self,
        program: str,
        settings: Settings,
        workspace: Workspace,
        listeners: Listeners,
        web: Sequence[Listener],
        kind: int,
        multi_model: MultiModelRoutes | None,
    ) -> None:
        self._program = program
        self._version = read_version(program)
        self._settings = settings
        self._workspace = workspace
        self._listeners = listeners
        self._web = web
        self._kind = kind
        self._multi_model = multi_model
        self._extra_listeners = sockets.listen_on_extra_ports(
            listeners, settings.extra_ports, settings.scheme
        )
        self.grpc_listeners = sockets.listen_for_grpc(listeners, settings.grpc_port)
        self._grpc = tuple(map(sockets.shown_address, self.grpc_listeners))
        if self._grpc:
            log.info("listening for gRPC on %s", " and ".join(self._grpc))
        self._instances: Sequence[Instance] = ()  # which links lead to
        self.files = FrontFiles(settings, workspace.nginx)
        self.serving: Deployment | None = None

    @property
    def other_listeners(self) -> list[Listener]:
        return [*self._extra_listeners, *self.grpc_listeners]

    def spec(self, environ: Mapping[str, str]) -> ProcessSpec:
        """Writes the configuration for the start, and returns the process. Raises SettingsError."""
        home = self.files.home
        home.mkdir()
        self.files.use(self.files.read())
        self.configure(None)
        listeners = [*self._listeners, *self.other_listeners]
        for listener in listeners:
            listener.set_inheritable(True)
        descriptors = tuple(listener.fileno() for listener in listeners)
        return ProcessSpec(
            name="nginx",
            argv=(self._program, "-p", f"{home}", "-c", f"{home / 'nginx.conf'}", "-e", "stderr"),
            # By this variable nginx inherits listening sockets, in its own upgrade protocol.
            env={**environ, "NGINX": "".join(f"{descriptor};" for descriptor in descriptors)},
            pass_fds=descriptors,
            stop_signal=signal.SIGQUIT,
            survivors_signal=signal.SIGQUIT,
            orphaned_signal=signal.SIGTERM,  # its workers end at once, too
            drops_output=True,
        )

    def configure(self, serving: Deployment | None) -> None:
        """Writes nginx.conf for what is served now; nginx reads it at its start and on SIGHUP."""
        self.serving = serving
        listen, *others = map(sockets.shown_address, (*self._listeners, *self._extra_listeners))
        cores = available_resources().cores
        proxy = nginx.ProxyConfig(
            listen,
            tuple(map(sockets.shown_address, self._web)),
            self._workspace.client_socket,
            grpc=self._grpc,
            serving=serving,
            kind=self._kind,
            multi_model=self._multi_model,
            free_bytes=shutil.disk_usage(self._workspace.nginx).free,
            connections=nginx.most_connections(cores, most_descriptors()),
            processes=min(cores, nginx.MOST_PROCESSES),
            version=self._version,
            also_listen=tuple(others),
            keys=self.files.keys,
        )
        path = self._workspace.nginx / "nginx.conf"
        path.touch(0o600)  # it may have callers' keys
        path.write_text(nginx.config(proxy, self._settings, self._workspace))

    def begin_reload(self, nginx: ChildProcess, serving: Deployment) -> Collection[int]:
        """Makes nginx serve this; returns the pids of its former workers, which finish their requests.

        Only now may nginx send requests past the workers. It goes on as it is if all is configured already.
        """
        config = self._workspace.nginx / "nginx.conf"
        former = set(child_pids(nginx.pid or 0))
        before = config.read_text(), self._instances
        self.configure(serving)
        self._instances = serving.instances
        if (config.read_text(), self._instances) == before:
            return ()
        nginx.send_signal(signal.SIGHUP)
        return former

    async def until_gone(
        self, nginx: ChildProcess, former: Collection[int], seconds: float = RELOAD_SECONDS
    ) -> None:
        """Returns once the former workers have ended, or after so many seconds.

        They close their idle connections first: no client that sees a 200 after this is on one.
        """
        deadline = time.monotonic() + seconds
        hurried = False
        while not all(map(has_ended, former)) and time.monotonic() < deadline:
            await asyncio.sleep(RELOAD_PAUSE_SECONDS)
            if not hurried and not set(former).issuperset(child_pids(nginx.pid or 0)):
                # It has started new ones by then, but sleeps for 100 ms before it tells the former ones so.
                for pid in set(former).intersection(child_pids(nginx.pid or 0)):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGQUIT)
                hurried = True

    def close(self) -> None:
        """Stops listening; idempotent. `Front` closes ``listeners`` itself."""
        for listener in self.other_listeners:
            listener.close()


def read_version(program: str) -> tuple[int, ...]:
    """The version that ``nginx -V`` says, as 1, 26, 3; 0 if it says none."""
    output = subprocess.run([program, "-V"], capture_output=True, timeout=VERSION_SECONDS, check=False).stderr
    version = re.search(rb"/(\d+)\.(\d+)\.(\d+)", output)
    return tuple(map(int, version.groups())) if version else (0,)
