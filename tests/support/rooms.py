"""How large the rooms of the package are."""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "tfs_proxy"
TOP = "top level"


@dataclass(frozen=True, slots=True)
class Size:
    """Lines and modules of a room."""

    lines: int
    modules: int


def sizes() -> dict[str, Size]:
    """The size of each folder of the package; modules beside them count as one room."""
    modules = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).parts
        modules[parts[0] if len(parts) > 1 else TOP].append(path.read_text().count("\n"))
    return {room: Size(sum(lines), len(lines)) for room, lines in modules.items()}


def totals() -> dict[str, int]:
    """Lines of all modules of the package, and of all tests."""
    tests = sum(path.read_text().count("\n") for path in Path(__file__).parents[1].rglob("*.py"))
    return {"src": sum(size.lines for size in sizes().values()), "tests": tests}
