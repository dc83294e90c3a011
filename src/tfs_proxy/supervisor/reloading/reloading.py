"""All of ``serve --reload`` and ``--watch`` in one run: what they follow, and who loads it."""

from typing import Final

from tfs_proxy.archive.s3_client import S3_SCHEME
from tfs_proxy.errors import SettingsError
from tfs_proxy.names import printable
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor.front.run_status import RunStatus
from tfs_proxy.supervisor.opening import ServeRequest
from tfs_proxy.supervisor.reloading.code_files import Snapshot
from tfs_proxy.supervisor.reloading.followed import Followed
from tfs_proxy.supervisor.reloading.model_files import model_source
from tfs_proxy.supervisor.reloading.reloader import Reloader
from tfs_proxy.supervisor.reloading.worker_exchange import WorkerExchange
from tfs_proxy.supervisor.succession import Generations

RELOAD, WATCH = "--reload (TFS_PROXY_RELOAD)", "--watch (TFS_PROXY_WATCH)"
RELOAD_LOOK_SECONDS: Final = 0.2
WATCH_LOOK_SECONDS: Final = 1.0


def refuse_unusable_reload(settings: Settings, request: ServeRequest) -> None:
    """Raise SettingsError if changes, which should be followed, can't be."""
    setting = RELOAD if settings.reload else WATCH
    if request.flags is not None:
        raise SettingsError(f"{setting} can't be used here: only `tfs-proxy serve` follows changes.")
    model = request.model or settings.model or ""
    if settings.reload and model.startswith(S3_SCHEME):
        raise SettingsError(
            f"{RELOAD} can't be used with {printable(model)}: it follows a folder or an archive on this "
            "machine. Download it first, or take --watch, which looks for a new archive there."
        )
    ports = settings.safe_port_range
    if ports is not None and ports.low + 4 * settings.instance_count - 1 > ports.high:
        raise SettingsError(
            f"{setting} can't be used with SAGEMAKER_SAFE_PORT_RANGE={ports.low}-{ports.high}: old and new "
            f"model servers need {4 * settings.instance_count} ports while both run."
        )


class Reloading:
    """The changes that a run follows, and loads."""

    def __init__(self, settings: Settings, request: ServeRequest) -> None:
        self._settings = settings
        self._source = model_source(request.model or settings.model)
        self._models: Snapshot = {}

    def look(self) -> None:
        """Note what models and archive are like now, which nobody has opened yet."""
        self._models = self._source.look()

    async def run(self, generations: Generations, status: RunStatus) -> None:
        """Load each change from now on."""
        follows_code = self._settings.reload
        look_seconds = RELOAD_LOOK_SECONDS if follows_code else WATCH_LOOK_SECONDS
        exchange = WorkerExchange(self._settings) if follows_code else None
        followed = Followed(self._source.look, generations, status, exchange)
        await Reloader(followed, self._models, look_seconds, follows_code=follows_code).run()
