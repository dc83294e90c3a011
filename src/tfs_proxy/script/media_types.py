"""The media types that a script reads, and whether in a form of its own, guessed from its text."""

import ast
import re
from collections.abc import Iterator

MEDIA_TYPE = re.compile(r"(?:application|audio|image|text|video)/[\w.+-]+")
ANSWERING = frozenset({"output_handler", "output_fn"})
"""Functions whose constants are about the answer."""

PARSERS = frozenset({"load", "loads", "describe"})
ANY_PARSERS = PARSERS | {"frombuffer", "open", "read_csv", "reader", "split", "splitlines"}
"""Calls by which a script takes a body apart itself; those of `PARSERS` even if it tells types apart."""

COLLECTIONS = (ast.Dict, ast.List, ast.Set, ast.Tuple)


def media_types_in(tree: ast.Module | None) -> tuple[str, ...]:
    """Types that the script compares with something, then those in collections of its top level.

    Each in the order of the text. Those in functions that make the answer don't count.
    """
    if tree is None:
        return ()
    compared = (node for node in _nodes(tree) if isinstance(node, (ast.Compare, ast.match_case)))
    collected = (
        node
        for statement in tree.body
        if isinstance(statement, (ast.Assign, ast.AnnAssign))
        for node in ast.walk(statement)
        if isinstance(node, COLLECTIONS)
    )
    names = [name for nodes in (compared, collected) for node in nodes for name in _types(node)]
    return tuple(dict.fromkeys(names))


def reads_own_form(tree: ast.Module | None) -> bool:
    """Whether a body as the model server takes it is probably none for the script."""
    if tree is None:
        return False
    called, keys = set(), set()
    for node in _nodes(tree):
        if isinstance(node, ast.Call):
            called.add(getattr(node.func, "attr", getattr(node.func, "id", "")))
            keys |= {each.value for each in node.args if isinstance(each, ast.Constant)}
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            keys.add(node.slice.value)
    parsers = PARSERS if media_types_in(tree) else ANY_PARSERS
    return bool(called & parsers) and "default_input" not in called and not keys & {"instances", "inputs"}


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes in the order of the text, without the functions that make the answer."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name in ANSWERING:
            continue
        yield node
        yield from _nodes(node)


def _types(node: ast.AST) -> Iterator[str]:
    """The media types in a comparison, a pattern or a collection, without what is nested in calls."""
    inner = node.pattern if isinstance(node, ast.match_case) else node
    for part in ast.walk(inner):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            name = part.value.lower()
            if MEDIA_TYPE.fullmatch(name):
                yield name
