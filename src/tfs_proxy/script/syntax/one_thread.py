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
        name, keywords = _name(call, names), {keyword.arg for keyword in call.keywords}
        several = f"{path}, line {call.lineno}: requests come in several threads, and"
        if name == "sqlite3.connect" and at_load and "check_same_thread" not in keywords:
            cures = f"pass check_same_thread=False, or set {CURE}"
            yield f"{several} this connection to SQLite works only in the one that opens it: {cures}."
        if name == "signal.signal" and not at_load:
            yield f"{several} signal.signal works only in the main one: set {CURE}."


def _calls(tree: ast.AST, loading: frozenset[str]) -> Iterator[tuple[ast.Call, bool]]:
    """Every call, and whether it is made as the script is loaded: ``loading`` are functions that run then."""
    waiting = [(tree, True)]
    while waiting:
        node, at_load = waiting.pop()
        if isinstance(node, ast.Call):
            yield node, at_load
        if isinstance(node, (*FUNCTIONS, ast.Lambda)):
            at_load = getattr(node, "name", "") in loading
        waiting += [(child, at_load) for child in ast.iter_child_nodes(node)]


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The names that the script gives to modules and to what is in them: theirs by its own."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            yield from ((alias.asname or alias.name, module + alias.name) for alias in node.names)


def _name(call: ast.Call, names: Mapping[str, str]) -> str:
    """What is called, under its own name: ``sqlite3.connect``."""
    node, path = call.func, ""
    while isinstance(node, ast.Attribute):
        path, node = f".{node.attr}{path}", node.value
    return names.get(node.id, node.id) + path if isinstance(node, ast.Name) else ""
