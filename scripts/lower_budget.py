"""Writes the sizes of rooms into tests/budget.toml where they have fallen; raising one is done by hand."""

import sys
import tomllib
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from support.rooms import Size, sizes  # noqa: E402 - found by the line above

FILE = TESTS / "budget.toml"
HEAD = "# Lines and modules of each room of src/tfs_proxy: `make budget` writes what is smaller.\n"


def main() -> None:
    """Write the file."""
    before = tomllib.loads(FILE.read_text()).get("rooms", {}) if FILE.exists() else {}
    text = HEAD
    for room, size in sorted(sizes().items()):
        allowed = Size(**before[room]) if room in before else size
        lines, modules = min(size.lines, allowed.lines), min(size.modules, allowed.modules)
        name = f'"{room}"' if " " in room else room
        text += f"\n[rooms.{name}]\nlines = {lines}\nmodules = {modules}\n"
    FILE.write_text(text)


main()
