"""Syntax of a script, read without running it: its functions, media types, and threads."""

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from tfs_proxy.values.names import similar

HANDLERS = ("handler", "input_handler", "output_handler")
BODY_READERS = HANDLERS[:2]
STREAMS = "streams"
"""Attribute of the function that gets the body: if it is true, the body is read in parts."""

SCRIPT_MODEL_FUNCTIONS = ("model_fn", "input_fn", "predict_fn", "output_fn", "transform_fn")
"""Functions that make a script the model itself (docs/reference/sagemaker.md)."""

HEALTH = "health"
"""Function that says if the script can serve; it counts only if its argument is called ``context``."""

PARAMETERS: Mapping[str, Sequence[str]] = {
    "handler": ("data", "context"),
    "input_handler": ("data", "context"),
    "output_handler": ("response", "context"),
    "model_fn": ("model_dir",),
    "input_fn": ("data", "content_type"),
    "predict_fn": ("data", "model"),
    "output_fn": ("prediction", "accept"),
    "transform_fn": ("model", "data", "content_type", "accept"),
    "init": ("context",),
    "close": (),
    HEALTH: ("context",),
}
"""Positional arguments of each function; a script model's functions may take a context after them."""

SIMILAR = 0.85
"""Least ratio of `difflib` at which a name counts as a misspelling of another."""


def form_of(name: str) -> str:
    """Function as a script has to define it: ``handler(data, context)``."""
    return f"{name}({', '.join(PARAMETERS[name])})"


def misspelt(missing: Iterable[str], functions: Iterable[str]) -> dict[str, str]:
    """Find functions of a script that probably were to be one of ``missing``: that name by the function's."""
    known = {*HANDLERS, *SCRIPT_MODEL_FUNCTIONS}
    candidates = [name for name in functions if name not in known]
    meant = ((similar(name, candidates, SIMILAR), name) for name in missing)
    return {close: name for close, name in meant if close}


def no_handler(path: object, defined: Collection[str], functions: Iterable[str] = ()) -> str:
    """Sentence for a script without a handler, with a hint if a name is similar."""
    sentence = (
        f"{path} defines no handler: it must define {form_of('handler')}, "
        f"or {form_of('input_handler')} and {form_of('output_handler')}."
    )
    for written, name in misspelt(HANDLERS, functions).items():
        return f"{sentence} It defines {written}: did you mean {name}?"
    script_model = [name for name in SCRIPT_MODEL_FUNCTIONS if name in defined]
    if script_model:
        return f"{sentence} Its {script_model[0]} is for archives without a SavedModel, and this one has one."
    return sentence


def no_model_fn(path: object, functions: Iterable[str] = ()) -> str:
    """Sentence for a script that is the model itself and can't load it."""
    sentence = f"{path} defines no model_fn: {form_of('model_fn')} must load and return the model."
    for written in misspelt(("model_fn",), functions):
        return f"{sentence} It defines {written}: did you mean model_fn?"
    return sentence


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (*FUNCTIONS, ast.ClassDef, ast.Lambda)
REFLECTION = frozenset({"globals", "locals", "vars", "setattr", "exec", "__getattr__"})
"""Names by which a script may define any other name."""


class Parameters(Struct, frozen=True):
    """Function as the script writes it: its line, its parameters, and how many positional ones it takes."""

    line: int
    text: str
    fewest: int
    most: int | None

    def accepts(self, count: int) -> bool:
        """True if it can be called with ``count`` positional arguments and nothing else."""
        return self.fewest <= count and (self.most is None or count <= self.most)


class AstNames(Struct, frozen=True):
    """Names that a script defines, as its text shows them."""

    names: frozenset[str] = frozenset()
    """Names of the top level; none if the script can't be read."""

    functions: Mapping[str, Parameters] = field(default_factory=dict)
    """Parameters by name, of names that are one plain function and nothing else."""

    is_open: bool = False
    """True if only running the script shows all of its names."""

    fault: str = ""
    """Phrase that says why the script can't be read; "" if it can."""

    tree: ast.Module | None = None
    """Syntax of the whole script; None if it can't be read."""

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
    by_name: dict[str, list[ast.AST]] = {}
    for name, node in _bound(tree.body):
        by_name.setdefault(name, []).append(node)
    functions = {
        name: _parameters(nodes[0])
        for name, nodes in by_name.items()
        if len(nodes) == 1 and isinstance(nodes[0], FUNCTIONS) and not nodes[0].decorator_list
    }
    is_open = any(
        (isinstance(node, ast.alias) and node.name == "*")
        or isinstance(node, ast.Global)
        or (isinstance(node, ast.Name) and node.id in REFLECTION)
        or (isinstance(node, FUNCTIONS) and node.name in REFLECTION)
        for node in ast.walk(tree)
    )
    return AstNames(frozenset(by_name), functions, is_open, tree=tree)


def reads_in_parts(ast_names: AstNames) -> bool:
    """True if the script has a line like ``handler.streams = True`` for the function that gets the body."""
    readers = ast_names.defined(BODY_READERS)[:1]
    if ast_names.tree is None:
        return False
    return any(
        isinstance(target, ast.Attribute)
        and target.attr == STREAMS
        and getattr(target.value, "id", "") in readers
        and bool(getattr(node.value, "value", False))
        for node in ast.walk(ast_names.tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
    )


def asks_for_preload(script: Path) -> bool:
    """True if the script's top level has the line ``preload = True``."""
    lines = (
        ast.unparse(node) for node in ast.parse(script.read_bytes()).body if isinstance(node, ast.Assign)
    )
    return "preload = True" in lines


def _bound(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """Names that the top level binds, each with its binding, also within `if`, `try` or `with`."""
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


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Parameters:
    arguments = function.args
    positional = len(arguments.posonlyargs) + len(arguments.args)
    most = None if arguments.vararg else positional
    if any(default is None for default in arguments.kw_defaults):
        most = -1  # a keyword-only argument without a default: a positional call fails
    return Parameters(function.lineno, ast.unparse(arguments), positional - len(arguments.defaults), most)


def fault_of(ast_names: AstNames, path: object, *, script_model: bool) -> str | None:
    """Reason why the script at ``path`` can't be used; None if reading shows none.

    ``script_model`` says that the script is the model itself.
    """
    names: Sequence[str] = SCRIPT_MODEL_FUNCTIONS
    is_there = "model_fn" in ast_names.names if script_model else ast_names.defined(HANDLERS)
    if not ast_names.is_open and not is_there:
        if script_model:
            return no_model_fn(path, ast_names.functions)
        return no_handler(path, ast_names.names, ast_names.functions)
    if not script_model:
        names = HANDLERS[:1] if "handler" in ast_names.names else HANDLERS[1:]
    for name in names:
        function = ast_names.functions.get(name)
        count = len(PARAMETERS[name])
        if function is None or function.accepts(count) or (script_model and function.accepts(count + 1)):
            continue
        return (
            f"{path}, line {function.line}: {name}({function.text}) can't be called with "
            f"{count} positional argument{'s' if count != 1 else ''}: it must be {form_of(name)}."
        )
    return None


def doubts_about(ast_names: AstNames, path: object, *, script_model: bool) -> tuple[str, ...]:
    """Warnings about a usable script that probably does not do what was meant."""
    called: Sequence[str] = () if "handler" in ast_names.names else HANDLERS
    if script_model:
        called = ("model_fn",) if "transform_fn" in ast_names.names else SCRIPT_MODEL_FUNCTIONS[:-1]
    meant = misspelt((name for name in called if name not in ast_names.names), ast_names.functions)
    return tuple(
        f"{path} defines {written}, which is not called: did you mean {name}?"
        for written, name in meant.items()
    )


MEDIA_TYPE = re.compile(r"(?:application|audio|image|text|video)/[\w.+-]+")
ANSWERING = frozenset({"output_handler", "output_fn"})
"""Functions whose constants are about the answer."""

PARSERS = frozenset({"load", "loads", "describe"})
ANY_PARSERS = PARSERS | {"frombuffer", "open", "read_csv", "reader", "split", "splitlines"}
"""Calls by which a script parses a body itself; those of `PARSERS` even if it tells types apart."""

COLLECTIONS = (ast.Dict, ast.List, ast.Set, ast.Tuple)


def media_types_in(tree: ast.Module | None) -> tuple[str, ...]:
    """Find types that the script compares with something, then those in collections of its top level.

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
    """True if the script probably does not take a body in the model server's form."""
    if tree is None:
        return False
    called = set()
    keys = set()
    if _takes_own_class(tree):
        return True
    for node in _nodes(tree):
        if isinstance(node, ast.Call):
            called.add(getattr(node.func, "attr", getattr(node.func, "id", "")))
            keys |= {each.value for each in node.args if isinstance(each, ast.Constant)}
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            keys.add(node.slice.value)
    parsers = PARSERS if media_types_in(tree) else ANY_PARSERS
    return bool(called & parsers) and "default_input" not in called and not keys & {"instances", "inputs"}


def _takes_own_class(tree: ast.Module) -> bool:
    """True if a function that gets the body is annotated with a class that the script defines."""
    own = {name for name, node in _bound(tree.body) if isinstance(node, (ast.ClassDef, ast.Name))}
    return any(
        own & set(re.findall(r"\w+", ast.unparse(argument.annotation)))
        for node in tree.body
        if isinstance(node, FUNCTIONS) and node.name in {*BODY_READERS, "input_fn"}
        for argument in node.args.args[:1]
        if argument.annotation is not None
    )


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes in the order of the text, without the functions that make the answer."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name in ANSWERING:
            continue
        yield node
        yield from _nodes(node)


def _types(node: ast.AST) -> Iterator[str]:
    """Yield the media types in a comparison, a pattern or a collection, without nested calls."""
    inner = node.pattern if isinstance(node, ast.match_case) else node
    for part in ast.walk(inner):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            name = part.value.lower()
            if MEDIA_TYPE.fullmatch(name):
                yield name
