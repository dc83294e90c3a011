"""The TCP ports that processes listen on, read from Linux's /proc."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
LISTEN = "0A"
"""The state of a listening socket in /proc/net/tcp."""
ADDRESS, STATE, INODE = 1, 3, 9
"""Columns of it."""


def group_ports(group: int) -> frozenset[int] | None:
    """Ports on which a process of the session ``group`` listens; None if there is no /proc."""
    members = session_members(group)
    if not (PROC / "net" / "tcp").exists():
        return None
    inodes = {inode for pid in members for inode in _socket_inodes(pid)}
    return frozenset(port for port, inode in _listeners(PROC / "net") if inode in inodes)


def namespace_ports(pid: int) -> frozenset[int] | None:
    """Ports that are listened on in the network of process ``pid``.

    None if it can't be looked into, or if it is this machine's own, where others listen, too.
    """
    process = PROC / str(pid)
    try:
        if (process / "ns" / "net").readlink() == (PROC / "self" / "ns" / "net").readlink():
            return None
        return frozenset(port for port, _ in _listeners(process / "net"))
    except OSError:
        return None


def _listeners(folder: Path) -> Iterable[tuple[int, str]]:
    for name in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):
            for line in (folder / name).read_text().splitlines()[1:]:
                columns = line.split()
                if columns[STATE] == LISTEN:
                    yield int(columns[ADDRESS].rpartition(":")[2], 16), columns[INODE]


def session_members(group: int) -> list[int]:
    """Processes of the session that ``group`` leads, whatever their groups are."""
    found = []
    for entry in os.listdir(PROC) if PROC.exists() else ():  # noqa: PTH208 - names are all that is needed
        if entry.isdigit():
            with suppress(OSError):
                if os.getsid(int(entry)) == group:
                    found.append(int(entry))
    return found


def _socket_inodes(pid: int) -> Iterable[str]:
    with suppress(OSError):
        for link in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                target = os.readlink(link)  # noqa: PTH115 - not a path
                if target.startswith("socket:["):
                    yield target[len("socket:[") : -1]
