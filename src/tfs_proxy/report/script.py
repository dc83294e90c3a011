"""What the start-up report says of the script: what it defines, what is odd, and why it can't be used."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfs_proxy.layout import ModelLayout
from tfs_proxy.script.ast_names import AstNames, read_ast_names
from tfs_proxy.script.contract import HANDLERS, SCRIPT_MODEL_FUNCTIONS
from tfs_proxy.script.reading import doubts_about, fault_of


@dataclass(frozen=True, slots=True)
class ScriptReport:
    """The user's script: where it is looked for, below the root, and its handlers; None without a script."""

    path: Path
    handlers: tuple[str, ...] | None

    @property
    def sentence(self) -> str:
        """What was found, in words."""
        match self.handlers:
            case None:
                return f"none: there is no {self.path}"
            case ():
                return f"{self.path} defines none of {', '.join(HANDLERS)}"
            case ("handler", _, *_):
                unused = words_joined(self.handlers[1:])
                return f"{self.path} defines handler, which is used; its {unused} is not"
            case _:
                return f"{self.path} defines {words_joined(self.handlers)}"


@dataclass(frozen=True, slots=True)
class ScriptModelReport:
    """A script that is the model itself: its path below the root, and the functions that it defines."""

    path: Path
    functions: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """What was found, in words."""
        if not self.functions:
            return f"{self.path} is the model itself, by what it imports; no model server"
        defaults = [] if "transform_fn" in self.functions else list(SCRIPT_MODEL_FUNCTIONS[1:-1])
        missing = [name for name in defaults if name not in self.functions]
        rest = f" (and the default of {words_joined(missing)})" if missing else ""
        functions = words_joined(self.functions)
        return f"{self.path} is the model itself: it defines {functions}{rest}; no model server"


@dataclass(frozen=True, slots=True)
class ScriptFindings:
    """All that reading the script shows; ``fault`` says why it can't be used."""

    found: ScriptReport | ScriptModelReport
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    fault: str | None = None


def report_on_script(layout: ModelLayout, *, script_model: bool) -> ScriptFindings:
    """Read the script of ``layout``, which is the model itself in a ``script_model``."""
    path = layout.script.relative_to(layout.root)
    ast_names = read_ast_names(layout.script)
    if ast_names is None:
        return ScriptFindings(ScriptReport(path, None))
    return ScriptFindings(
        found=_found(ast_names, path, script_model=script_model),
        notes=_notes(ast_names, path, script_model=script_model),
        warnings=doubts_about(ast_names, path, script_model=script_model),
        fault=fault_of(ast_names, path, script_model=script_model),
    )


def _found(ast_names: AstNames, path: Path, *, script_model: bool) -> ScriptReport | ScriptModelReport:
    if script_model:
        return ScriptModelReport(path, ast_names.defined(SCRIPT_MODEL_FUNCTIONS))
    return ScriptReport(path, ast_names.defined(HANDLERS))


def _notes(ast_names: AstNames, path: Path, *, script_model: bool) -> tuple[str, ...]:
    """The functions of the other kind of script, which nothing calls here."""
    uncalled = words_joined(ast_names.defined(HANDLERS if script_model else SCRIPT_MODEL_FUNCTIONS))
    why = "that takes a SavedModel" if script_model else "the SavedModel is what is served"
    return (f"{uncalled} in {path} is not called: {why}.",) if uncalled else ()


def words_joined(names: Sequence[str]) -> str:
    """Names as a phrase: ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
