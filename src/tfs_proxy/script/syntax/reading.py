"""What is wrong with a script as far as reading shows, in sentences: nothing of it is run."""

from collections.abc import Iterator

from tfs_proxy.script.contract import (
    HANDLERS,
    PARAMETERS,
    SCRIPT_MODEL_FUNCTIONS,
    form_of,
    missing_names,
    misspelt,
    no_handler,
    no_model_fn,
)
from tfs_proxy.script.syntax.ast_names import AstNames


def fault_of(ast_names: AstNames, path: object, *, script_model: bool) -> str | None:
    """Why the script at ``path`` can't be used; None if reading shows no reason.

    ``script_model`` says that the script is the model itself.
    """
    return _what_is_missing(ast_names, path, script_model=script_model) or next(
        _misfits(ast_names, path, script_model=script_model), None
    )


def doubts_about(ast_names: AstNames, path: object, *, script_model: bool) -> tuple[str, ...]:
    """What was probably meant otherwise, in a script that can be used."""
    names = SCRIPT_MODEL_FUNCTIONS if script_model else HANDLERS
    meant = misspelt(missing_names(ast_names.defined(names), script_model=script_model), ast_names.functions)
    return tuple(
        f"{path} defines {written}, which is not called: did you mean {name}?"
        for written, name in meant.items()
    )


def _what_is_missing(ast_names: AstNames, path: object, *, script_model: bool) -> str | None:
    if ast_names.is_open:
        return None
    if script_model:
        return None if "model_fn" in ast_names.names else no_model_fn(path, ast_names.functions)
    return None if ast_names.defined(HANDLERS) else no_handler(path, ast_names.names, ast_names.functions)


def _misfits(ast_names: AstNames, path: object, *, script_model: bool) -> Iterator[str]:
    """Functions that can't be called with the arguments that they get."""
    names = (
        SCRIPT_MODEL_FUNCTIONS
        if script_model
        else HANDLERS[:1]
        if "handler" in ast_names.names
        else HANDLERS[1:]
    )
    for name in names:
        function = ast_names.functions.get(name)
        count = len(PARAMETERS[name])
        if function is None or function.take(count) or (script_model and function.take(count + 1)):
            continue
        yield (
            f"{path}, line {function.line}: {name}({function.text}) can't be called with "
            f"{_count(count)}: it must be {form_of(name)}."
        )


def _count(arguments: int) -> str:
    return f"{arguments} positional argument{'s' if arguments != 1 else ''}"
