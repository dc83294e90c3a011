"""Sockets that the supervisor owns and passes to its children: bound first, they outlive every child.

Closing a listening one resets the connections in its accept queue, whose clients may have sent requests. So
the processes that accept go on until the queue is empty, and with it all that came before the stop (Linux;
elsewhere it is closed at once). No capability is needed: containers have none to filter packets.
"""

import asyncio
import errno
import logging
import socket
import struct
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from ipaddress import ip_address
from itertools import product
from pathlib import Path

from tfs_proxy.settings.parsers import PortRange, Ports
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.wire.http_server import BACKLOG

log = logging.getLogger(__name__)

Listener = socket.socket
"""A socket that accepts, or will: opened here, passed through to the process that serves it."""

Listeners = Sequence[socket.socket]
"""Sockets of one port, at each address that is listened on."""

LOOPBACK = "127.0.0.1"
EVERY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - a container's port is published from outside
FAMILIES = {"all": EVERY_ADDRESS, "::": EVERY_ADDRESS, "local": (LOOPBACK, "::1")}
LACKS_IPV6 = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
LOOK_SECONDS = 0.01


def unbound() -> Listener:
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)


CONTAINER_FILES = (Path("/.dockerenv"), Path("/run/.containerenv"))
CONTAINER_VARIABLES = (
    *("KUBERNETES_SERVICE_HOST", "SAGEMAKER_SAFE_PORT_RANGE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
    *("ECS_CONTAINER_METADATA_URI_V4", "K_SERVICE", "AIP_HTTP_PORT", "CONTAINER_APP_NAME"),
)
"""Variables that only platforms set which connect from outside: Kubernetes, AWS, Google's and Azure's."""


def default_host(environ: Mapping[str, str]) -> str:
    """All addresses in containers and on platforms, whose callers are outside; else this machine's."""
    is_inside = any(map(environ.get, CONTAINER_VARIABLES)) or any(file.exists() for file in CONTAINER_FILES)
    return "all" if is_inside else "local"


ADVICE = "Take another --host or --port."


def listen_on(words: Sequence[str], port: int, advice: str = ADVICE) -> list[socket.socket]:
    """Listens on each address, or on both families of ``all`` and ``local``; without IPv6 on IPv4 alone."""
    hosts = FAMILIES.get(words[0], words)
    listeners = [listen(hosts[0], port, advice)]
    for host in hosts[1:]:
        try:
            listeners.append(listen(host, listeners[0].getsockname()[1], advice))
        except SettingsError as error:
            if hosts is words or getattr(error.__cause__, "errno", None) not in LACKS_IPV6:
                raise
    return listeners


def listen(host: str, port: int, advice: str = ADVICE) -> socket.socket:
    """Binds and listens on ``host:port``; port 0 takes a free one.

    From here on the kernel accepts connections, whichever process answers them later. Raises
    SettingsError with the address and ``advice`` if it can't be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:  # else it would take IPv4's connections, and write their addresses so
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        # nginx leaves an inherited socket as it is, and a connection may wake several of its workers: those
        # that find it taken would stop in accept until the next one comes, with all their requests.
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise SettingsError(f"can't listen on {host}:{port}: {error.strerror or error}. {advice}") from error
    return listener


def listen_for_grpc(listeners: Listeners, choice: Ports | None) -> list[socket.socket]:
    """Listens on the port of the setting; nowhere if it is off, or if auto finds its port taken.

    Raises SettingsError if a port that was named can't be used.
    """
    if choice is None:
        return []
    hosts = [listener.getsockname()[0] for listener in listeners]
    try:
        return listen_on(hosts, choice.numbers[0], "Take another TFS_PROXY_GRPC_PORT.")
    except SettingsError as error:
        if choice.required:
            raise
        log.warning("TF Serving's gRPC API is not published: %s", error)
        return []


def listen_on_extra_ports(
    listeners: Listeners, choice: Ports | None, scheme: str = "http"
) -> list[socket.socket]:
    """Listens on the ports of the setting, at the addresses of ``listeners``; none if it is off.

    Their own port, and with auto a port that is taken, are left out. Raises SettingsError if a port that was
    named can't be used.
    """
    opened: list[socket.socket] = []
    addresses = [listener.getsockname()[:2] for listener in listeners]
    for number, (host, main_port) in product(() if choice is None else choice.numbers, addresses):
        if number == main_port:
            continue
        try:
            opened.append(listen(host, number, "Take another TFS_PROXY_EXTRA_PORTS."))
        except SettingsError as error:
            if choice is not None and choice.required:
                raise
            log.warning("the HTTP port alone answers: %s", error)
    for extra in opened:
        log.info("listening on %s, too", shown([extra], scheme))
    return opened


def hold_for_grpc(listener: Listener, choice: Ports | None) -> socket.socket | None:
    """Binds the port of the setting for a child that listens on it, too; None as for `listen_for_grpc`.

    Nothing is accepted here. Raises SettingsError if a port that was named can't be used.
    """
    opened = listen_for_grpc([listener], choice)
    if not opened:
        return None
    # Only now it is certain that no other process has the port: those who share one would share its calls.
    held = opened[0]
    host, port = opened[0].getsockname()[:2]
    held.close()
    holder = socket.socket(held.family, socket.SOCK_STREAM)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    holder.bind((host, port))
    return holder


async def until_it_listens(path: Path) -> None:
    """Returns once a process accepts connections on the unix socket at ``path``."""
    while not accepts(path):  # noqa: ASYNC110 - it is another process that listens
        await asyncio.sleep(LOOK_SECONDS)


def accepts(path: Path) -> bool:
    """True if a process accepts connections on the unix socket at ``path`` now."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        return probe.connect_ex(str(path)) == 0


def free_ports(count: int, held: ExitStack) -> list[int]:
    """``count`` different loopback ports that nothing listens on, for children to bind.

    Until ``held`` is closed the kernel gives them to no other process, neither before a child has bound its
    own nor while it is restarted (Linux; elsewhere they are free only now).
    """
    with ExitStack() as holders:
        holds = [holders.enter_context(socket.socket()) for _ in range(count)]
        for holder in holds:
            holder.bind((LOOPBACK, 0))
            # Only now: before, a port that somebody else holds in this way would seem to be free.
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ports = [int(holder.getsockname()[1]) for holder in holds]
        if sys.platform == "linux":
            # Kept, unless no child could bind what is held, as in gVisor.
            with socket.socket() as child, suppress(OSError):
                child.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                child.bind((LOOPBACK, ports[0]))
                held.push(holders.pop_all())
    return ports


def model_server_ports(ports: PortRange | None, instances: int, held: ExitStack) -> list[tuple[int, int]]:
    """(gRPC, REST) ports per instance: LOW+2i and LOW+2i+1 of the range, else free ones, in ``held``."""
    if ports is not None:
        return [(ports.low + 2 * index, ports.low + 2 * index + 1) for index in range(instances)]
    free = free_ports(2 * instances, held)
    return list(zip(free[::2], free[1::2], strict=True))


def web_listener(ports: PortRange | None, instances: int) -> socket.socket:
    """A loopback socket for the workers behind nginx: from the end of the range, else a free one.

    The range may have nothing beyond the ports of `model_server_ports`.
    """
    for port in range(ports.high, ports.low + 2 * instances - 1, -1) if ports else ():
        with suppress(SettingsError):
            return listen(LOOPBACK, port)
    return listen(LOOPBACK, 0)


def shown(listeners: Listeners, scheme: str = "http") -> str:
    """Addresses of ``listeners`` for the log."""
    return " and ".join(f"{scheme}://{shown_address(listener)}" for listener in listeners)


def shown_address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def local_url(listeners: Listeners, scheme: str = "http") -> str:
    """A URL that reaches ``listeners`` from this machine: ``localhost`` for all, or both families of it."""
    hosts = {listener.getsockname()[0] for listener in listeners}
    if hosts & {*EVERY_ADDRESS} or hosts == {*FAMILIES["local"]}:
        return f"{scheme}://localhost:{listeners[0].getsockname()[1]}"
    return f"{scheme}://{shown_address(listeners[0])}"


def reach(listeners: Listeners, *, with_key: bool) -> str:
    """Say for the ready line who can connect, and if requests need a key."""
    hosts = [str(listener.getsockname()[0]) for listener in listeners]
    key = ", with a key" if with_key else ""
    if all(ip_address(host).is_loopback for host in hosts):
        return f"for this machine alone{key}"
    return f"for whoever reaches {'this machine' if hosts[0] in EVERY_ADDRESS else ' or '.join(hosts)}{key}"


def connections(ports: Collection[int]) -> int:
    """Number of open connections that other programs have with local ``ports`` (Linux; elsewhere 0)."""
    lines: list[str] = []
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            lines += Path("/proc/self/net", table).read_text().splitlines()[1:]
    rows = [line.split() for line in lines]
    return sum(row[3] == _ESTABLISHED and int(row[1].rpartition(":")[2], 16) in ports for row in rows)


_ESTABLISHED = "01"

QUIET_LOOKS = 10
"""The queue must be empty this many times in a row: a handshake may still be under way."""

MOST_SECONDS = 2.0
"""Clients that never pause keep a queue from being empty: the wait ends so long after it was shortest."""

_WAITING = struct.Struct("24xI")
"""In TCP_INFO of a listening socket: connections in its accept queue (``tcpi_unacked``)."""


async def accept_pending(listeners: Sequence[socket.socket], enough: Callable[[], bool]) -> None:
    """Returns once the accept queues stay empty, stop shrinking, or ``enough`` returns true."""
    if sys.platform != "linux":
        return
    shortest = sys.maxsize
    since = time.monotonic()
    quiet = 0
    while quiet < QUIET_LOOKS and not enough() and time.monotonic() < since + MOST_SECONDS:
        await asyncio.sleep(LOOK_SECONDS)
        infos = (each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _WAITING.size) for each in listeners)
        waiting = sum(_WAITING.unpack(info)[0] for info in infos)
        quiet = 0 if waiting else quiet + 1
        if waiting < shortest:
            shortest = waiting
            since = time.monotonic()
