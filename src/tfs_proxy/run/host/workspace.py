"""The folder of one run, created before anything else is written, and files that processes lock."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.layout import Workspace
from tfs_proxy.values.names import printable

PREFIX = "tfs-proxy-"
REMEDY = (
    "If the root is read-only, mount a folder that can be written to (docker run --read-only --tmpfs /tmp, "
    "an emptyDir at /tmp in Kubernetes), or name one in TFS_PROXY_HOME."
)
SHORT_PLAIN = (
    "Name a folder with a short path in TFS_PROXY_HOME, without blanks, quotes, backslashes and any of ;{}$%."
)

_UNUSABLE = " '\"\\;{}$%"
"""Characters of a path with a special meaning in nginx.conf or gRPC's ``unix:`` addresses."""
_SOCKET_PATH_BYTES = 107
LONGEST_PATH = "gate127.sock"

OWNER = "owner"
"""The file in a workspace that its run keeps locked."""

_RANDOM_CHARACTERS = 8


def refuse_unusable(home: str | None, longest_path: str = LONGEST_PATH) -> None:
    """Raises SettingsError if sockets and configuration can't have paths in a workspace below ``home``.

    ``longest_path`` is the longest path of a socket within the workspace.
    """
    try:
        folder = Path(home or tempfile.gettempdir()).resolve()
    except OSError:
        return  # nothing can be written anywhere: `temporary_workspace` reports that
    name = f"TFS_PROXY_HOME={printable(home)}" if home else f"The temporary folder {printable(str(folder))}"
    for each in str(folder):
        if each in _UNUSABLE or not each.isprintable():
            raise SettingsError(f"{name} can't be used: the path has the character {each!r}. {SHORT_PLAIN}")
    longest = folder / f"{PREFIX}{'x' * _RANDOM_CHARACTERS}" / longest_path
    if (over := len(bytes(longest)) - _SOCKET_PATH_BYTES) > 0:
        raise SettingsError(
            f"{name} can't be used: sockets in it would have paths {over} bytes longer than the "
            f"{_SOCKET_PATH_BYTES} that are allowed. {SHORT_PLAIN}"
        )


@contextmanager
def temporary_workspace(home: str | None, prefix: str = PREFIX) -> Iterator[Workspace]:
    """A workspace below ``home`` (None: the system's temporary folder) that is removed at the end.

    First removes our own whose file `OWNER` no process has locked any more: killed runs' copies of models.
    Raises SettingsError with the remedy if nothing can be written there.
    """
    with suppress(OSError):
        for file in Path(home or tempfile.gettempdir()).glob(f"{PREFIX}*/{OWNER}"):
            with suppress(OSError):
                if file.stat().st_uid == os.geteuid() and not is_path_locked(file):
                    shutil.rmtree(file.parent, ignore_errors=True)
    try:
        if home is not None:
            Path(home).mkdir(parents=True, exist_ok=True)
        workspace = Workspace(Path(tempfile.mkdtemp(prefix=prefix, dir=home)).resolve())
    except OSError as error:
        what = f"TFS_PROXY_HOME={home} can't be written" if home else "No folder can be written to"
        raise SettingsError(f"{what}: {error.strerror}. {REMEDY}") from error
    with ExitStack() as held:
        unlocked = workspace.root / f"{OWNER}.new"
        with suppress(OSError):  # a disk without room, or without locks: then it never seems abandoned
            held.callback(os.close, owner := os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            fcntl.flock(owner, fcntl.LOCK_EX)
            unlocked.rename(workspace.root / OWNER)  # it is locked from its first moment on
        held.callback(shutil.rmtree, workspace.root, ignore_errors=True)
        yield workspace


@contextmanager
def run_workspace(home: str | None, longest_path: str = LONGEST_PATH) -> Iterator[Workspace]:
    """The workspace of a run. Raises SettingsError if nothing can be written there.

    Its sockets, up to ``longest_path``, and configuration files must be able to have paths there, too.
    """
    refuse_unusable(home, longest_path)
    with temporary_workspace(home) as workspace:
        yield workspace


def make_workspace_within(run: Workspace, root: Path, *more: Path) -> Workspace:
    """A new workspace at ``root``, with links to what ``run`` has once, and to ``more`` of its paths."""
    root.mkdir(parents=True)
    # All workers of a run write to these and follow them, whichever models they serve.
    for path in (run.requests, run.memory_ledger, run.nginx, *more):
        (root / path.name).symlink_to(path)
    return Workspace(root)


def is_locked(descriptor: int) -> bool:
    """True if another process has locked the file; a lock that was taken is released at once."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def is_path_locked(path: Path) -> bool:
    """The same for the file at ``path``; False if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return is_locked(descriptor)
    finally:
        os.close(descriptor)
