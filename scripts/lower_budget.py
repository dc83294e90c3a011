"""Writes the sizes of the package and its rooms into tests/budget.toml where they have fallen."""

import sys
import tomllib
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from support.rooms import Size, sizes, total  # noqa: E402 - found by the line above

FILE = TESTS / "budget.toml"
HEAD = (
    "# Lines of the package, lines and modules of each of its rooms: `make budget` lowers them.\n"
    "# The total only falls. Rooms trade: one that needs more gets it where there is room.\n"
)


def main() -> None:
    """Write the file."""
    before = tomllib.loads(FILE.read_text())
    text = HEAD + f"\n[total]\nlines = {min(total(), before['total']['lines'])}\n"
    for room, size in sorted(sizes().items()):
        allowed = Size(**before["rooms"].get(room, {"lines": size.lines, "modules": size.modules}))
        lines, modules = min(size.lines, allowed.lines), min(size.modules, allowed.modules)
        name = f'"{room}"' if " " in room else room
        text += f"\n[rooms.{name}]\nlines = {lines}\nmodules = {modules}\n"
    FILE.write_text(text)


main()
