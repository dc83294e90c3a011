"""What a script may define: the names of its functions, and the arguments that each is called with."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from tfs_proxy.names import similar

HANDLERS = ("handler", "input_handler", "output_handler")
SCRIPT_MODEL_FUNCTIONS = ("model_fn", "input_fn", "predict_fn", "output_fn", "transform_fn")
"""What a script defines that is the model itself (docs/reference/sagemaker.md): see `script.script_model`."""

PARAMETERS: Mapping[str, Sequence[str]] = {
    "handler": ("data", "context"),
    "input_handler": ("data", "context"),
    "output_handler": ("response", "context"),
    "model_fn": ("model_dir",),
    "input_fn": ("data", "content_type"),
    "predict_fn": ("data", "model"),
    "output_fn": ("prediction", "accept"),
    "transform_fn": ("model", "data", "content_type", "accept"),
}
"""The positional arguments of each function; a script model's functions may take a context after them."""

SIMILAR = 0.85
"""From this ratio of `difflib` on, a name counts as a misspelling of another."""


def form_of(name: str) -> str:
    """The function as a script has to define it: ``handler(data, context)``."""
    return f"{name}({', '.join(PARAMETERS[name])})"


def missing_names(defined: Collection[str], *, script_model: bool) -> tuple[str, ...]:
    """The functions that a script could define beside those in ``defined``, and that would be called."""
    if not script_model:
        return () if "handler" in defined else tuple(name for name in HANDLERS if name not in defined)
    wanted = ("model_fn",) if "transform_fn" in defined else SCRIPT_MODEL_FUNCTIONS[:-1]
    return tuple(name for name in wanted if name not in defined)


def misspelt(missing: Iterable[str], functions: Iterable[str]) -> dict[str, str]:
    """Functions of a script that probably were to be one of ``missing``: that name by the function's."""
    known = {*HANDLERS, *SCRIPT_MODEL_FUNCTIONS}
    candidates = [name for name in functions if name not in known]
    meant = ((similar(name, candidates, SIMILAR), name) for name in missing)
    return {close: name for close, name in meant if close}


def no_handler(path: object, defined: Collection[str], functions: Iterable[str] = ()) -> str:
    """The sentence for a script without a handler, with a hint at what was meant, if anything is similar."""
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
    """The sentence for a script that is the model itself and can't load it."""
    sentence = f"{path} defines no model_fn: {form_of('model_fn')} must load and return the model."
    for written in misspelt(("model_fn",), functions):
        return f"{sentence} It defines {written}: did you mean model_fn?"
    return sentence
