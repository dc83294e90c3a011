"""How large the rooms of the package are, in tokens of code."""

import ast
import io
import tokenize
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "tfs_proxy"
TOP = "top level"
CODE = {tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING}
F_STRING_START = getattr(tokenize, "FSTRING_START", -1)
F_STRING_END = getattr(tokenize, "FSTRING_END", -1)
"""Python 3.12 and newer take an f-string apart, between these two; 3.11 gives it as one string."""


@dataclass(frozen=True, slots=True)
class Size:
    """Tokens of code and modules of a room."""

    tokens: int
    modules: int


def sizes() -> dict[str, Size]:
    """The size of each folder of the package; modules beside them count as one room."""
    modules = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).parts
        modules[parts[0] if len(parts) > 1 else TOP].append(tokens_of_code(path.read_text()))
    return {room: Size(sum(tokens), len(tokens)) for room, tokens in modules.items()}


def totals() -> dict[str, int]:
    """Tokens of code of all modules of the package, and of all tests."""
    tests = sum(tokens_of_code(path.read_text()) for path in Path(__file__).parents[1].rglob("*.py"))
    return {"src": sum(size.tokens for size in sizes().values()), "tests": tests}


def tokens_of_code(text: str) -> int:
    """Names, operators, numbers and strings of a module, an f-string as one; docstrings and layout are free."""
    docstrings = _docstring_rows(text)
    count = 0
    depth = 0  # of f-strings within f-strings
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == F_STRING_START:
            count += depth == 0
            depth += 1
        elif token.type == F_STRING_END:
            depth -= 1
        elif token.type in CODE and depth == 0:
            count += token.type != tokenize.STRING or token.start[0] not in docstrings
    return count


def _docstring_rows(text: str) -> set[int]:
    """Rows of statements that are a string and nothing else: the docstrings of fields, too."""
    return {
        row
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for row in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
