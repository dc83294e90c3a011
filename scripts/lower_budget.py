"""Writes the sizes of the package and its rooms into tests/budget.toml where they have fallen."""

import sys
import tomllib
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from support.rooms import Size, sizes, totals  # noqa: E402 - found by the line above

FILE = TESTS / "budget.toml"
HEAD = (
    "# Lines of the package and of its tests, lines and modules of each room of the package:\n"
    "# `make budget` lowers them. The totals only fall. Rooms trade lines with each other.\n"
)


def main() -> None:
    """Write the file."""
    before = tomllib.loads(FILE.read_text())
    text = HEAD + "\n[total]\n"
    for part, lines in totals().items():
        text += f"{part} = {min(lines, before['total'].get(part, lines))}\n"
    for room, size in sorted(sizes().items()):
        allowed = Size(**before["rooms"].get(room, {"lines": size.lines, "modules": size.modules}))
        lines, modules = min(size.lines, allowed.lines), min(size.modules, allowed.modules)
        name = f'"{room}"' if " " in room else room
        text += f"\n[rooms.{name}]\nlines = {lines}\nmodules = {modules}\n"
    FILE.write_text(text)


main()
