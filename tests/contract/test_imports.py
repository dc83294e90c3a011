"""The black box stays one: its files import nothing of ours but what users import."""

import ast
from collections.abc import Iterator
from pathlib import Path

OURS = {"tfs_proxy", "tfs_proxy.testing"}
PARTS = {"contract.doors", "contract.stacks", "contract.scripts", "contract.conftest"}
ROOMS = ("tfs_proxy", "support", "attack", "contract", "scripts", "benchmarks")


def imported(path: Path) -> Iterator[str]:
    """All modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, path
            yield str(node.module)


def test_files_import_the_public_modules_alone() -> None:
    """And each other."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    ours = {(path.name, name) for path in files for name in imported(path) if name.split(".")[0] in ROOMS}

    assert len(files) > 10
    assert {pair for pair in ours if pair[1] not in OURS | PARTS} == set()
