"""Sends the supervisor's request for a process to the one that is to become it, or to fork it."""

import asyncio
import socket

from tfs_proxy.forking.request import NUMBER, ForkRequest
from tfs_proxy.supervisor.process import ProcessSpec

STDOUT, STDERR = 1, 2


async def send_request(connection: socket.socket, spec: ProcessSpec, output: int) -> None:
    """Ask for ``spec``, which prints to ``output``; ``connection`` is not blocking."""
    # Its output has their place, as in a process that is started with them.
    passed = [number for number in spec.pass_fds if number > STDERR]
    request = ForkRequest(spec.argv, spec.env, (STDOUT, *passed), int(spec.orphaned_signal)).to_bytes()
    socket.send_fds(connection, [NUMBER.pack(len(request))], [output, *passed])
    await asyncio.get_running_loop().sock_sendall(connection, request)
