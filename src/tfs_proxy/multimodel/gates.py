"""The gates of models: links that are there while a model is ready; nginx and the gRPC router go by them."""

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from tfs_proxy.grpc_router.gates import calls_file, gate
from tfs_proxy.supervisor.host.file_locks import is_path_locked
from tfs_proxy.supervisor.nginx.many_models import ALL_GATES, COMMON_WORKSPACES, FAST, GATES, SERVED_GATES


class HttpGates:
    """All gates of a run, in folders below its workspace's ``root``.

    A model is loaded under one name, and served under that name or others by TF Serving's API; the Open
    Inference Protocol knows it by all of them.
    """

    def __init__(self, root: Path) -> None:
        self._loaded, self._served, self._fast = root / GATES, root / SERVED_GATES, root / FAST
        self._all = root / ALL_GATES
        self.workspaces = root / COMMON_WORKSPACES

    def make_folders(self) -> None:
        """Make the folders, before the first model comes."""
        for folder in (self._loaded, self._served, self._all, self._fast, self.workspaces):
            folder.mkdir()

    def open(self, name: str, served_names: Collection[str], web_socket: Path) -> None:
        """Requests for the model lead to ``web_socket`` from now on."""
        for each in {name, *served_names}:
            _link(self._all / f"{each}.sock", web_socket)
        for served_name in served_names:
            _link(self._served / f"{served_name}.sock", web_socket)
        _link(self._loaded / f"{name}.sock", web_socket)

    def open_fast(self, name: str) -> None:
        """Requests that need no conversion may go straight to a model server, which knows this name, too."""
        (self._fast / name).touch()

    def share(self, name: str, served_names: Collection[str], workspace: Path) -> None:
        """The common workers find the model's ``workspace`` by all of its names."""
        for each in {name, *served_names}:
            _link(self.workspaces / each, workspace)

    def close(self, name: str, served_names: Collection[str]) -> None:
        """Requests find the model no more; idempotent."""
        (self._fast / name).unlink(missing_ok=True)
        (self._loaded / f"{name}.sock").unlink(missing_ok=True)
        for served_name in served_names:
            (self._served / f"{served_name}.sock").unlink(missing_ok=True)
        for each in {name, *served_names}:
            (self._all / f"{each}.sock").unlink(missing_ok=True)
            (self.workspaces / each).unlink(missing_ok=True)


def _link(link: Path, target: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)


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
