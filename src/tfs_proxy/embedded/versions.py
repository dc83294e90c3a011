"""Which version folders lie below a model's base path: what the engine polls."""

from pathlib import Path

_SCHEME = "file://"


def local(path: str) -> Path:
    """A base path or URI as a path of this machine."""
    return Path(path.removeprefix(_SCHEME))


def find(base_path: str) -> dict[int, Path]:
    """Each version number below a base path with its folder; empty where there is none.

    A folder counts when its name is a whole number; zeros may lead (``00001``). Raises
    FileNotFoundError where the base path is no folder.
    """
    found: dict[int, Path] = {}
    root = local(base_path)
    if not root.is_dir():
        raise FileNotFoundError(base_path)
    for child in sorted(root.iterdir()):
        if child.name.isascii() and child.name.isdigit() and child.is_dir():
            found.setdefault(int(child.name), child)
    return found
