"""The gates of models: links that exist while a model is ready, by which nginx finds its server."""

from collections.abc import Collection, Iterator
from pathlib import Path

from tfs_proxy.run.nginx.many_models import ANY, COMMON_WORKSPACES, FAST, GATES, LOADED, SERVED


class HttpGates:
    """All gates of a run, below its workspace's ``root``.

    TF Serving's API may know a model by other names than it is loaded under, the v2 protocol by all of them.
    """

    def __init__(self, root: Path) -> None:
        self._gates, self._fast, self.workspaces = root / GATES, root / FAST, root / COMMON_WORKSPACES

    def make_folders(self) -> None:
        """Call it before the first model comes."""
        for folder in (self._gates, self._fast, self.workspaces):
            folder.mkdir()

    def open(self, name: str, served_names: Collection[str], web_socket: Path) -> None:
        """Sends requests for the model to ``web_socket`` from now on."""
        for gate in self._of(name, served_names):
            _link(gate, web_socket)

    def _of(self, name: str, served_names: Collection[str]) -> Iterator[Path]:
        """The gates of a model; those that nginx checks come last."""
        for each in {name, *served_names}:
            yield self._gates / f"{each}.{ANY}"
        for served_name in served_names:
            yield self._gates / f"{served_name}.{SERVED}"
        yield self._gates / f"{name}.{LOADED}"

    def open_fast(self, name: str) -> None:
        """Lets requests that need no conversion go directly to a model server, which has this name, too."""
        (self._fast / name).touch()

    def share(self, name: str, served_names: Collection[str], workspace: Path) -> None:
        """Lets the common workers find the model's ``workspace`` by all of its names."""
        for each in {name, *served_names}:
            _link(self.workspaces / each, workspace)

    def close(self, name: str, served_names: Collection[str]) -> None:
        (self._fast / name).unlink(missing_ok=True)
        for gate in reversed(tuple(self._of(name, served_names))):
            gate.unlink(missing_ok=True)
        for each in {name, *served_names}:
            (self.workspaces / each).unlink(missing_ok=True)


def _link(link: Path, target: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)
