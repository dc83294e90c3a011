"""Sockets that the supervisor owns and passes to its children: bound first, they outlive every child.

Closing a listening one resets the connections in its accept queue, whose clients may have sent requests. So
the processes that accept go on until the queue is empty, and with it all that came before the stop (Linux;
elsewhere it is closed at once). No capability is needed: containers have none to filter packets.
"""

import asyncio
import logging
import secrets
import socket
import struct
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from tfs_proxy.settings.parsers import ExtraPorts, GrpcPort, PortRange
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.wire.http_server import BACKLOG

log = logging.getLogger(__name__)

Listener = socket.socket
"""A socket that accepts, or will: opened here, passed through to the process that serves it."""

LOOPBACK = "127.0.0.1"
EVERY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - it is only compared
BLOCKS = range(12000, 30000)
"""Below the node ports of Kubernetes, and what kernels give to outgoing connections."""
BLOCK_TRIES = 1000
LOOK_SECONDS = 0.01


def unbound() -> Listener:
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)


def listen(host: str, port: int, advice: str = "Take another --host or --port.") -> socket.socket:
    """Binds and listens on ``host:port``; port 0 takes a free one.

    From here on the kernel accepts connections, whichever process answers them later. Raises
    SettingsError with the address and ``advice`` if it can't be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        # nginx leaves an inherited socket as it is, and a connection may wake several of its workers: those
        # that find it taken would stop in accept until the next one comes, with all their requests.
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise SettingsError(f"can't listen on {host}:{port}: {error.strerror or error}. {advice}") from error
    return listener


def listen_for_grpc(host: str, choice: GrpcPort | None) -> socket.socket | None:
    """Listens on the port of the setting; None if it is off, or if auto finds its port taken.

    Raises SettingsError if a port that was named can't be used.
    """
    if choice is None:
        return None
    try:
        return listen(host, choice.number, "Take another TFS_PROXY_GRPC_PORT.")
    except SettingsError as error:
        if choice.required:
            raise
        log.warning("TF Serving's gRPC API is not published: %s", error)
        return None


def listen_on_extra_ports(listener: socket.socket, choice: ExtraPorts | None) -> list[socket.socket]:
    """Listens on the ports of the setting, at the address of ``listener``; none if it is off.

    The port of ``listener`` itself, and with auto a port that is taken, are left out. Raises SettingsError if
    a port that was named can't be used.
    """
    host, main_port = listener.getsockname()[:2]
    opened: list[socket.socket] = []
    for number in () if choice is None else choice.numbers:
        if number == main_port:
            continue
        try:
            opened.append(listen(host, number, "Take another TFS_PROXY_EXTRA_PORTS."))
        except SettingsError as error:
            if choice is not None and choice.required:
                raise
            log.warning("the HTTP port alone answers: %s", error)
    for extra in opened:
        log.info("listening on http://%s, too", shown_address(extra))
    return opened


def hold_for_grpc(host: str, choice: GrpcPort | None) -> socket.socket | None:
    """Binds the port of the setting for a child that listens on it, too; None as for `listen_for_grpc`.

    Nothing is accepted here. Raises SettingsError if a port that was named can't be used.
    """
    held = listen_for_grpc(host, choice)
    if held is None:
        return None
    # Only now it is certain that no other process has the port: those who share one would share its calls.
    port = held.getsockname()[1]
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
        ports = [_hold(0, holders) for _ in range(count)]
        _keep(holders, held, ports)
    return ports


def free_blocks(sizes: Sequence[int], held: ExitStack) -> list[range]:
    """For each of ``sizes`` that many consecutive loopback ports, held as those of `free_ports`.

    They are below the ports that the kernel gives to outgoing connections, one of which would have such a
    port by the time that its server binds it. Raises SettingsError if none are left.
    """
    with ExitStack() as holders:
        blocks = [_free_block(size, holders) for size in sizes]
        _keep(holders, held, [block.start for block in blocks])
    return blocks


def _hold(port: int, held: ExitStack) -> int:
    """Binds a port, 0 for any, without listening: a child that sets SO_REUSEADDR can bind it as well."""
    holder = held.enter_context(socket.socket())
    holder.bind((LOOPBACK, port))
    # Only now: before, a port that somebody else holds in this way would seem to be free.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return int(holder.getsockname()[1])


def _keep(holders: ExitStack, held: ExitStack, ports: Sequence[int]) -> None:
    """Keeps holding, unless no child could bind what is held: as elsewhere than on Linux, and in gVisor."""
    if sys.platform == "linux" and all(map(_can_be_bound_by_a_child, ports[:1])):
        held.push(holders.pop_all())


def _can_be_bound_by_a_child(port: int) -> bool:
    with socket.socket() as child:
        child.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            child.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _free_block(size: int, held: ExitStack) -> range:
    for _ in range(BLOCK_TRIES):
        low = BLOCKS.start + secrets.randbelow(len(BLOCKS) - size)
        with ExitStack() as holders:
            try:
                for port in range(low, low + size):
                    _hold(port, holders)
            except OSError:
                continue
            held.push(holders.pop_all())
            return range(low, low + size)
    raise SettingsError(f"no {size} consecutive ports are free from {BLOCKS.start} to {BLOCKS.stop - 1}.")


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


def is_free_port(port: int) -> bool:
    """True if a server could listen on the port now, on all addresses."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("", port))
        except OSError:
            return False
    return True


def shown_address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def local_url(listener: socket.socket) -> str:
    """A URL that reaches ``listener`` from this machine: ``localhost`` if it listens on every address."""
    host, port = listener.getsockname()[:2]
    return f"http://localhost:{port}" if host in EVERY_ADDRESS else f"http://{shown_address(listener)}"


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
    shortest, since, quiet = sys.maxsize, time.monotonic(), 0
    while quiet < QUIET_LOOKS and not enough() and time.monotonic() < since + MOST_SECONDS:
        await asyncio.sleep(LOOK_SECONDS)
        waiting = sum(map(_waiting, listeners))
        quiet = 0 if waiting else quiet + 1
        if waiting < shortest:
            shortest, since = waiting, time.monotonic()


def _waiting(listener: socket.socket) -> int:
    tcp_info = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _WAITING.size)
    return int(_WAITING.unpack(tcp_info)[0])
