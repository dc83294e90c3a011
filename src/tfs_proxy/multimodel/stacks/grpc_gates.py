"""The gates by which the gRPC router finds models, and the calls that an unload waits for."""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tfs_proxy.grpc_router.gates import calls_file, gate
from tfs_proxy.supervisor.host.file_locks import is_path_locked

LOOK_SECONDS: Final = 0.02


class GrpcGates:
    """The gates in ``folder`` of ``models`` that the same model servers have; all are shut at first."""

    def __init__(self, folder: Path, models: Iterable[str]) -> None:
        self._folder = folder
        self._models = tuple(models)
        self._open: dict[Path, Path] = {}
        self._calls_files: set[Path] = set()
        self._is_closed = False

    def lead_to(self, sockets: Mapping[int, Path]) -> None:
        """Let calls reach exactly these gRPC sockets, by instance; nothing happens after `close`."""
        if self._is_closed:
            return
        wanted = {
            gate(self._folder, model, instance): socket
            for model in self._models
            for instance, socket in sockets.items()
        }
        for path in self._open.keys() - wanted.keys():
            self._shut(path)
        new = wanted.keys() - self._open.keys()
        if new:
            self._make_calls_files()
        for path in new:
            self._lead(path, wanted[path])

    def close(self) -> None:
        """Shut all gates for good; idempotent. Calls that are under way go on."""
        self._is_closed = True
        for path in tuple(self._open):
            self._shut(path)

    @property
    def in_use(self) -> bool:
        """Whether the router has a call to one of the models now."""
        return any(is_path_locked(calls_file(self._folder, model)) for model in self._models)

    async def wait_for_calls(self, seconds: float) -> None:
        """Return once no calls are under way, or after ``seconds``; new ones can't come after `close`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.in_use:  # noqa: ASYNC110 - it is another process that has the calls
                    await asyncio.sleep(LOOK_SECONDS)

    def forget(self) -> None:
        """Remove what is left after the last call; idempotent."""
        while self._calls_files:
            self._calls_files.pop().unlink(missing_ok=True)

    def _make_calls_files(self) -> None:
        for path in (calls_file(self._folder, model) for model in self._models):
            if not path.exists():
                path.touch()
                self._calls_files.add(path)

    def _lead(self, path: Path, socket: Path) -> None:
        path.unlink(missing_ok=True)
        path.symlink_to(socket)
        self._open[path] = socket

    def _shut(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        del self._open[path]
