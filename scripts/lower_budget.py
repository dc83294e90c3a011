"""Writes the sizes of the package and its rooms into tests/budget.toml where they have fallen."""

import sys
import tomllib
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from support.rooms import Size, sizes, totals  # noqa: E402 - found by the line above

FILE = TESTS / "budget.toml"
HEAD = (
    "# Tokens of code of the package and of its tests, tokens and modules of each room of the package:\n"
    "# `make budget` lowers them. The totals only fall. Rooms trade with each other.\n"
    "# Comments, docstrings, line ends and indentation are no tokens of code. Only totals of one history\n"
    "# are compared: a task that allows the code to grow begins the next one.\n"
)


def main() -> None:
    """Write the file."""
    before = tomllib.loads(FILE.read_text())
    text = f"{HEAD}\nhistory = {before['history']}\n\n[total]\n"
    for part, tokens in totals().items():
        text += f"{part} = {min(tokens, before['total'].get(part, tokens))}\n"
    for room, size in sorted(sizes().items()):
        allowed = Size(**before["rooms"].get(room, {"tokens": size.tokens, "modules": size.modules}))
        tokens = min(size.tokens, allowed.tokens)
        modules = min(size.modules, allowed.modules)
        name = f'"{room}"' if " " in room else room
        text += f"\n[rooms.{name}]\ntokens = {tokens}\nmodules = {modules}\n"
    FILE.write_text(text)


main()
