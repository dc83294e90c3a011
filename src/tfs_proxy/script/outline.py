"""What a script defines at its top level, read from its syntax alone: nothing of it is run."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Outline:
    """The names that a script defines; ``fault`` says why it can't be read, then there are none."""

    names: frozenset[str] = frozenset()
    fault: str = ""

    @property
    def is_open(self) -> bool:
        """Whether it imports all that another module has, so that only running it tells its names."""
        return "*" in self.names

    def defined(self, wanted: Iterable[str]) -> tuple[str, ...]:
        """Those of ``wanted`` that the script defines, in their order."""
        return tuple(name for name in wanted if name in self.names)


def outline_of(script: Path) -> Outline | None:
    """Read the script; None where there is no such file."""
    if not script.is_file():
        return None
    try:
        return Outline(frozenset(_top_level_names(ast.parse(script.read_bytes()).body)))
    except (SyntaxError, ValueError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        return Outline(fault=f"is no Python that can be read (line {line or '?'}: {error.args[0]})")


def _top_level_names(body: Iterable[ast.stmt]) -> Iterator[str]:
    for statement in body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name for alias in names)
            case ast.If(body=then, orelse=otherwise):
                yield from _top_level_names([*then, *otherwise])
            case ast.Try(body=then, orelse=otherwise):
                yield from _top_level_names([*then, *otherwise])
            case _:
                pass
