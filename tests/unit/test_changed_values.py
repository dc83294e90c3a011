"""Names in copies of values: type checkers do not look at those of ``replace`` and `Settings.with_values`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tfs_proxy

PACKAGE = Path(tfs_proxy.__file__).parent
MODULES = {module: ast.parse(module.read_text()) for module in sorted(PACKAGE.rglob("*.py"))}


def fields() -> Iterator[str]:
    """What the classes of the package declare."""
    for tree in MODULES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                for line in node.body:
                    if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                        yield line.target.id


def changed(function: str) -> Iterator[tuple[str, str]]:
    """The place of each call of ``function`` or of such a method, with each name that it changes."""
    for module, tree in MODULES.items():
        for node in ast.walk(tree):
            called = getattr(node, "func", None)
            if isinstance(node, ast.Call) and function in {
                getattr(called, "id", ""),
                getattr(called, "attr", ""),
            }:
                for keyword in node.keywords:
                    if keyword.arg is not None:
                        yield f"{module.relative_to(PACKAGE)}:{node.lineno}", keyword.arg


@pytest.mark.parametrize("function", ["replace", "with_values"])
def test_only_fields_are_changed(function: str) -> None:
    """A name that no class declares is a slip of the pen, which would be an error at run time."""
    names, known = list(changed(function)), set(fields())

    assert len(names) > 5
    assert [place_and_name for place_and_name in names if place_and_name[1] not in known] == []
