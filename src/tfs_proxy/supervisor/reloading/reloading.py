"""All of ``serve --reload`` in one run: the warm parent of new workers, and the loop that finds changes."""

from tfs_proxy.archive.s3_client import S3_SCHEME
from tfs_proxy.errors import SettingsError
from tfs_proxy.layout import Workspace
from tfs_proxy.names import printable
from tfs_proxy.report.prepare import Prepared
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor.children import Children
from tfs_proxy.supervisor.host.running_process import RunningProcess
from tfs_proxy.supervisor.opening import ServeRequest
from tfs_proxy.supervisor.process import ProcessSpec
from tfs_proxy.supervisor.programs.warm_parent import WarmParent
from tfs_proxy.supervisor.reloading.code_source import code_source
from tfs_proxy.supervisor.reloading.reloader import Reloader
from tfs_proxy.supervisor.reloading.worker_exchange import WorkerExchange
from tfs_proxy.supervisor.stack import ServingStack

SETTING = "--reload (TFS_PROXY_RELOAD)"


def refuse_unusable_reload(settings: Settings, request: ServeRequest) -> None:
    """Raise SettingsError if there is no folder or archive on this machine to be followed."""
    if request.flags is not None:
        raise SettingsError(
            f"{SETTING} can't be used here: only `tfs-proxy serve` has a script to load anew."
        )
    model = request.model or settings.model or ""
    if model.startswith(S3_SCHEME):
        raise SettingsError(
            f"{SETTING} can't be used with {printable(model)}: changes are seen in a folder or an archive on "
            "this machine. Download it first, or leave --reload out."
        )


class Reloading:
    """New workers for changed code, forked from a warm parent: they are ready sooner than started ones."""

    def __init__(self, settings: Settings, workspace: Workspace, request: ServeRequest) -> None:
        self._settings, self._workspace = settings, workspace
        self._model = request.model or settings.model
        self._warm_parent = WarmParent(settings, workspace, request.environ)
        self._reloader: Reloader | None = None

    async def spawn(self, spec: ProcessSpec, output: int) -> RunningProcess:
        """Start workers; the first ones before there is a warm parent."""
        return await self._warm_parent.spawn(spec, output)

    def follow(self, prepared: Prepared, stack: ServingStack) -> None:
        """Note what the code is like now, which the workers have not loaded yet."""
        layout = prepared.served.layout
        exchange = WorkerExchange(
            stack.children,
            stack.readiness.heartbeats,
            self._workspace,
            self.spawn,
            load_seconds=self._settings.wait_time_seconds,
            stop_seconds=self._settings.stop_seconds,
        )
        source = code_source(self._model, layout, self._settings, self._workspace)
        self._reloader = Reloader(source, layout, exchange)

    async def run(self, children: Children) -> None:
        """Load each change from now on."""
        self._warm_parent.start(children.start)
        if self._reloader is not None:
            await self._reloader.run()

    def reap_orphans(self) -> None:
        """Forget what has ended of the warm parent."""
        self._warm_parent.reap_orphans()

    async def stop(self) -> None:
        """End the warm parent."""
        await self._warm_parent.stop()
