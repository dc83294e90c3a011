"""When a change of files is whole: nothing has changed for a while. Pure: looks come with their time."""

from pathlib import Path

from tfs_proxy.supervisor.reloading.code_files import Snapshot, changed_files


class SettlingFiles:
    """Files that differ from those ``loaded`` last count once they have been the same for ``seconds``."""

    def __init__(self, loaded: Snapshot, seconds: float) -> None:
        self._loaded = self._seen = loaded
        self._seconds = seconds
        self._since = 0.0

    def note(self, files: Snapshot, now: float) -> None:
        """This is what they look like now."""
        if files != self._seen:
            self._seen, self._since = files, now

    @property
    def is_pending(self) -> bool:
        """Whether there is a change, whole or not."""
        return self._seen != self._loaded

    def is_whole(self, now: float) -> bool:
        """Whether there is none, or one that is whole."""
        return not self.is_pending or now - self._since >= self._seconds

    def take(self) -> tuple[Path, ...]:
        """The files that have changed; from here on these are loaded."""
        changed = changed_files(self._loaded, self._seen)
        self._loaded = self._seen
        return changed
