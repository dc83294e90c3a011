"""Store of the run's sessions: its folder, made at the start and removed at the end, and its metric."""

import logging
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.run.host.workspace import PREFIX, temporary_workspace
from tfs_proxy.serving.session_store import SessionStore
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import SessionOptions
from tfs_proxy.values.errors import SessionFailure, SettingsError
from tfs_proxy.values.layout import Workspace
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.values.names import printable

log = logging.getLogger(__name__)

PATH = "SAGEMAKER_SESSIONS_PATH"
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of the run's own is made in it
SHARES = 32
"""Full sessions that all sessions' room holds at least."""
LOG_BYTES = 24 * MEGABYTE
"""Room for SQLite's log of changes, beside the sessions: what 8 busy workers make of it, and a third."""


def session_options(settings: Settings) -> SessionOptions | None:
    """The store as workers get it; None if there are no sessions."""
    if settings.sessions_file is None:
        return None
    return SessionOptions(
        settings.sessions_file,
        settings.sessions_expiration_seconds,
        settings.sessions_max_mb * MEGABYTE // SHARES,
        settings.sessions_max_mb * MEGABYTE,
    )


@contextmanager
def with_session_store(settings: Settings, workspace: Workspace) -> Iterator[Settings]:
    """The settings of a run in ``workspace``, with an empty store if it has sessions; removed at the end.

    Raises SettingsError if none can be made.
    """
    if not settings.sessions:
        yield settings
        return
    with ExitStack() as held:
        path, folder = settings.sessions_path, workspace.root
        if path is not None or _has_room(SHARED_MEMORY, settings):  # only this user can enter it
            home = temporary_workspace(path or str(SHARED_MEMORY), f"{PREFIX}sessions-")
            try:
                folder = held.enter_context(home).root
            except SettingsError as error:
                if path is not None:
                    text = f"{PATH}={printable(path)} can't be used: {error.__cause__}."
                    raise SettingsError(text) from error
        if not _has_room(folder, settings):
            raise SettingsError(
                f"{folder} has too little room for TFS_PROXY_SESSIONS_MAX_MB={settings.sessions_max_mb} and "
                f"{LOG_BYTES // MEGABYTE} MB of changes. Lower it, or name another folder in {PATH}."
            )
        file = folder / "sessions.db"
        file.touch(mode=0o600, exist_ok=False)
        settings = settings.with_values(sessions_file=str(file))
        try:
            open_sessions(settings)
            log.info("sessions are kept in %s", folder)
        except SessionFailure as error:
            raise SettingsError(f"{error} Name a folder on a local disk in {PATH}.") from error
        yield settings


def _has_room(folder: Path, settings: Settings) -> bool:
    try:
        free_bytes = shutil.disk_usage(folder).free
    except OSError:
        return False
    return free_bytes >= settings.sessions_max_mb * MEGABYTE + LOG_BYTES


def session_metrics(settings: Settings) -> Iterator[MeasuredMetric]:
    """The open sessions now; nothing if there are none to be opened."""
    if settings.sessions_file is not None:
        with suppress(SessionFailure):  # only left out of this scrape
            yield MeasuredMetric(catalogue.SESSIONS, {(): open_sessions(settings)})


def open_sessions(settings: Settings) -> int:
    options = session_options(settings)
    if options is None:
        return 0
    with closing(SessionStore(options)) as store:
        return store.count()
