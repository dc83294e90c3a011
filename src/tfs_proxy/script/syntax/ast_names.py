"""What a script defines at its top level, read from its syntax alone: nothing of it is run."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct, field

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (*FUNCTIONS, ast.ClassDef, ast.Lambda)
REFLECTION = frozenset({"globals", "locals", "vars", "setattr", "exec", "__getattr__"})
"""A script that names one of these may define anything else."""


class Parameters(Struct, frozen=True):
    """A function as the script writes it: its line, its parameters, and how many positional ones it takes."""

    line: int
    text: str
    fewest: int
    most: int | None

    def take(self, count: int) -> bool:
        """Whether it can be called with ``count`` positional arguments and nothing else."""
        return self.fewest <= count and (self.most is None or count <= self.most)


class AstNames(Struct, frozen=True):
    """The names that a script defines; ``fault`` says why it can't be read, then there are none.

    ``functions`` are those of its names that are plain functions and nothing else. ``is_open`` tells
    that only running the script shows all of its names. ``tree`` is its whole syntax.
    """

    names: frozenset[str] = frozenset()
    functions: Mapping[str, Parameters] = field(default_factory=dict)
    is_open: bool = False
    fault: str = ""
    tree: ast.Module | None = None

    def defined(self, wanted: Iterable[str]) -> tuple[str, ...]:
        """Those of ``wanted`` that the script defines, in their order."""
        return tuple(name for name in wanted if name in self.names)


def read_ast_names(script: Path) -> AstNames | None:
    """Read the script; None if there is no such file."""
    if not script.is_file():
        return None
    try:
        tree = ast.parse(script.read_bytes())
    except (SyntaxError, ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        return AstNames(fault=f"is not valid Python (line {line or '?'}: {error.args[0]})")
    bound = list(_bound(tree.body))
    return AstNames(frozenset(name for name, _ in bound), _functions(bound), _is_open(tree), tree=tree)


def _bound(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """Every name that the top level binds, with what binds it, however deep in `if`, `try` or `with`."""
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node
            case ast.Name(id=name, ctx=ast.Store()):
                yield name, node
            case ast.alias(name=name, asname=asname):
                yield asname or name.partition(".")[0], node
        if not isinstance(node, SCOPES):
            yield from _bound(ast.iter_child_nodes(node))


def _functions(bound: Iterable[tuple[str, ast.AST]]) -> dict[str, Parameters]:
    """Undecorated functions whose name nothing else binds."""
    by_name: dict[str, list[ast.AST]] = {}
    for name, node in bound:
        by_name.setdefault(name, []).append(node)
    return {
        name: _parameters(nodes[0])
        for name, nodes in by_name.items()
        if len(nodes) == 1 and isinstance(nodes[0], FUNCTIONS) and not nodes[0].decorator_list
    }


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Parameters:
    arguments = function.args
    positional = len(arguments.posonlyargs) + len(arguments.args)
    most = None if arguments.vararg else positional
    if any(default is None for default in arguments.kw_defaults):
        most = -1  # a keyword-only argument without a default: no positional call will do
    return Parameters(function.lineno, ast.unparse(arguments), positional - len(arguments.defaults), most)


def _is_open(tree: ast.Module) -> bool:
    return any(
        (isinstance(node, ast.alias) and node.name == "*")
        or isinstance(node, ast.Global)
        or (isinstance(node, ast.Name) and node.id in REFLECTION)
        or (isinstance(node, FUNCTIONS) and node.name in REFLECTION)
        for node in ast.walk(tree)
    )
