"""The links by which gRPC calls reach the model servers of one archive, while these are ready."""

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tfs_proxy.layout import Workspace
from tfs_proxy.supervisor.host.file_locks import is_path_locked

LOOK_SECONDS: Final = 0.02


class InstanceGates:
    """The gates of ``count`` model servers; all are shut at first."""

    def __init__(self, workspace: Workspace, count: int) -> None:
        self._workspace = workspace
        self._count = count
        self._open: Mapping[int, Path] = {}

    def lead_to(self, sockets: Mapping[int, Path]) -> None:
        """Open the gates of these model servers, which listen for gRPC there, and close all others.

        So no call reaches a model server before it has loaded its models, and nginx needs no reload.
        """
        for index in range(self._count):
            if sockets.get(index) != self._open.get(index):
                self._lead(self._workspace.grpc_gate(index), sockets.get(index))
        self._open = dict(sockets)

    @staticmethod
    def _lead(gate: Path, socket: Path | None) -> None:
        if socket is None:
            gate.unlink()
            return
        Workspace(socket.parent).grpc_calls.touch()
        new = gate.with_suffix(".new")
        new.symlink_to(socket)
        new.rename(gate)  # at once: between two model servers no call finds a gate shut


async def until_calls_end(calls: Path, seconds: float) -> None:
    """Return once the gRPC router has no calls to model servers of this file, or after ``seconds``."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while is_path_locked(calls):  # noqa: ASYNC110 - it is another process that has the calls
                await asyncio.sleep(LOOK_SECONDS)
