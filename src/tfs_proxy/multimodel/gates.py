"""The gates of models: links that are there while a model is ready, by which nginx finds who serves it."""

from collections.abc import Collection
from pathlib import Path

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
