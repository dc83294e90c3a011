"""What in a script works in one thread alone, as far as reading shows: nothing of it is run.

Requests come in several threads, except with SAGEMAKER_GUNICORN_WORKER_CLASS=sync or gevent.
"""

import ast
from collections.abc import Iterator, Mapping

from tfs_proxy.script.syntax.ast_names import FUNCTIONS, AstNames

CURE = "SAGEMAKER_GUNICORN_WORKER_CLASS=sync"
LOADING = frozenset({"init", "model_fn"})
"""Functions that run once, in the thread that imports the script."""


def bound_to_one_thread(ast_names: AstNames, path: object) -> Iterator[str]:
    """A sentence for each call that fails if requests come in other threads than the script's import."""
    if ast_names.tree is None:
        return
    names = dict(_imported(ast_names.tree))
    loading = LOADING | {_name(call, {}) for call, at_load in _calls(ast_names.tree, LOADING) if at_load}
    for call, at_load in _calls(ast_names.tree, loading):
        name = _name(call, names)
        if name == "sqlite3.connect" and at_load and "check_same_thread" not in _keywords(call):
            yield (
                f"{path}, line {call.lineno}: requests come in several threads, and this connection to "
                f"SQLite works only in the one that opens it: pass check_same_thread=False, or set {CURE}."
            )
        if name == "signal.signal" and not at_load:
            yield (
                f"{path}, line {call.lineno}: requests come in several threads, and signal.signal works only "
                f"in the main one: set {CURE}."
            )


def _calls(
    node: ast.AST, loading: frozenset[str], *, at_load: bool = True
) -> Iterator[tuple[ast.Call, bool]]:
    """Every call, and whether it is made as the script is loaded: ``loading`` are functions that run then."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield child, at_load
        within = at_load and not isinstance(child, ast.Lambda)
        if isinstance(child, FUNCTIONS):
            within = child.name in loading
        yield from _calls(child, loading, at_load=within)


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The names that the script gives to modules and to what is in them: theirs by its own."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            yield from ((alias.asname or alias.name, module + alias.name) for alias in node.names)


def _name(call: ast.Call, names: Mapping[str, str]) -> str:
    """What is called, under its own name: ``sqlite3.connect``."""
    head, dot, rest = ast.unparse(call.func).partition(".")
    return names.get(head, head) + dot + rest


def _keywords(call: ast.Call) -> set[str | None]:
    return {keyword.arg for keyword in call.keywords}
