"""Builds what several processes of pytest need: one of them does the work, and the others wait for it."""

import contextlib
import fcntl
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "code_examples"


@contextlib.contextmanager
def alone(*names: str) -> Iterator[None]:
    """A block that no other process is in which has one of these names for it."""
    folder = ROOT / ".cache" / "building"
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as held:
        for name in sorted(set(names)):  # in the same order everywhere: nobody waits in a circle
            fcntl.flock(held.enter_context((folder / name).open("a")), fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def alone_in(example: Path) -> Iterator[None]:
    """A block that alone writes to an example's folder, and to those that its README names."""
    others = re.findall(r"\.\./(\w+)/", (example / "README.md").read_text())
    with alone(*(name for name in (example.name, *others) if (EXAMPLES / name).is_dir())):
        yield
