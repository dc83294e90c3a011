"""Report on the script: its functions, oddities, and why it can't be used."""

from collections.abc import Sequence

from msgspec import Struct

from tfs_proxy.model import script_syntax
from tfs_proxy.values.errors import ScriptLoadError
from tfs_proxy.values.layout import ModelLayout


class ScriptFindings(Struct, frozen=True):
    """Results of reading the script."""

    sentence: str
    """Description of the script in a few words."""

    notes: tuple[str, ...] = ()
    """Sentences about parts of it that are not used."""

    warnings: tuple[str, ...] = ()
    """Sentences about parts that won't do what the user meant."""

    fault: str | None = None
    """Sentence that says why it can't be used; None if it can."""


def report_on_script(layout: ModelLayout, *, script_model: bool) -> ScriptFindings:
    """Reads the script of ``layout``; a ``script_model`` is the model itself.

    Raises ScriptLoadError if it is not valid Python.
    """
    path = layout.shown_script
    ast_names = script_syntax.read_ast_names(layout.script)
    if ast_names is None:
        return ScriptFindings(f"none: there is no {path}")
    if ast_names.fault:
        raise ScriptLoadError(f"{path} {ast_names.fault}.")
    if script_model:
        functions = ast_names.defined(script_syntax.SCRIPT_MODEL_FUNCTIONS)
        why = ", by what it imports"
        if functions:
            defaults = () if "transform_fn" in functions else script_syntax.SCRIPT_MODEL_FUNCTIONS[1:-1]
            missing = [name for name in defaults if name not in functions]
            rest = f" (and the default of {words_joined(missing)})" if missing else ""
            why = f": it defines {words_joined(functions)}{rest}"
        sentence = f"{path} is the model itself{why}; no model server"
    else:
        in_parts = ", and reads bodies in parts" if script_syntax.reads_in_parts(ast_names) else ""
        sentence = f"{path} defines {_handlers(ast_names)}{in_parts}"
    # Functions of the other kind of script are never called.
    others = script_syntax.HANDLERS if script_model else script_syntax.SCRIPT_MODEL_FUNCTIONS
    uncalled = ast_names.defined(others)
    why = "that takes a SavedModel" if script_model else "the SavedModel is what is served"
    note = f"{words_joined(uncalled)} in {path} {_are(uncalled)} not called: {why}."
    return ScriptFindings(
        sentence=sentence,
        notes=(note,) if uncalled else (),
        warnings=script_syntax.doubts_about(ast_names, path, script_model=script_model),
        fault=script_syntax.fault_of(ast_names, path, script_model=script_model),
    )


def _handlers(ast_names: script_syntax.AstNames) -> str:
    match ast_names.defined(script_syntax.HANDLERS):
        case ():
            return f"none of {', '.join(script_syntax.HANDLERS)}"
        case ("handler", _, *_) as handlers:
            unused = handlers[1:]
            return f"handler, which is used; its {words_joined(unused)} {_are(unused)} not"
        case handlers:
            return words_joined(handlers)


def _are(names: Sequence[str]) -> str:
    return "are" if len(names) > 1 else "is"


def words_joined(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
