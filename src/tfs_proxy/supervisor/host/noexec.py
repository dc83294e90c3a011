"""A workspace that is mounted noexec, as Docker's tmpfs is: native modules in it can't be loaded."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from tfs_proxy.names import printable

IsNoexec = Callable[[Path], bool]


def is_noexec(folder: Path) -> bool:
    """Whether ``folder`` lies on a file system that is mounted noexec."""
    return bool(os.statvfs(folder).f_flag & os.ST_NOEXEC)


def warning(folders: Iterable[Path], is_noexec: IsNoexec = is_noexec) -> str | None:
    """A warning if ``folders`` hold native modules that can't be loaded because of the mount."""
    for folder in folders:
        if folder.is_dir() and is_noexec(folder):
            module = next((path for pattern in ("*.so", "*.so.*") for path in folder.rglob(pattern)), None)
            if module is not None:
                name = printable(module.name)
                return (
                    f"{folder} is mounted noexec, so native modules there such as {name} can't be "
                    "loaded: mount it with exec (docker run --tmpfs /tmp:exec), or set TFS_PROXY_HOME to a "
                    "volume"
                )
    return None
