"""Finds what a Keras model's configuration would run or read when it is loaded; `keras_files` asks first.

Keras' own safe mode differs between versions and formats (for .h5 some have none), so this reads the
whole configuration before any of them.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

OWN_PACKAGES = frozenset({"keras", "tf_keras", "builtins"})
CODE = "__lambda__"
LAMBDA_LAYER = "Lambda"
LOADERS: Mapping[str, str] = {
    "TFSMLayer": "loads another SavedModel",
    "TorchModuleWrapper": "unpickles a PyTorch module",
    "FlaxLayer": "wraps a function of Flax",
    "JaxLayer": "wraps a function of JAX",
}
LOOKUPS = frozenset({"IndexLookup", "StringLookup", "IntegerLookup", "TextVectorization"})
MODELLING = re.compile(
    r"builtins|(tf_)?keras(\.src)?\."
    r"(activations|constraints|initializers|layers|losses|metrics|ops|regularizers)(\.\w+)*"
)
"""Modules whose functions models are made of; functions of keras.utils can fetch and unpack files."""

SHOWN_CHARACTERS = 80


def what_runs(config: Any) -> str | None:
    """The first part that needs code from the file or reads other files, as the end of a sentence.

    It completes "FILE is refused: "; None if everything in ``config`` is Keras' own.
    """
    waiting: list[tuple[Any, str]] = [(config, "the model")]
    while waiting:
        node, owner = waiting.pop()
        if isinstance(node, Mapping):
            owner = _owner(node, owner)
            reason = _reason(node, owner)
            if reason is not None:
                return reason
            waiting.extend((child, owner) for child in node.values())
        elif isinstance(node, list):
            waiting.extend((child, owner) for child in node)
    return None


def custom_classes(config: Any) -> Iterator[str]:
    """Classes and functions that are not Keras' own, as far as ``config`` names their modules."""
    waiting = [config]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            name = _custom_name(node)
            if name is not None:
                yield name
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _owner(node: Mapping[str, Any], above: str) -> str:
    """The name of the layer that ``node`` describes, if it is one; else ``above``."""
    inner, kind = node.get("config"), node.get("class_name")
    name = inner.get("name") if isinstance(inner, Mapping) else None
    return f"layer {_short(name)} ({_short(kind)})" if isinstance(name, str) and kind else above


def _reason(node: Mapping[str, Any], owner: str) -> str | None:
    kind, inner = node.get("class_name"), node.get("config")
    if kind == CODE:
        return f"{owner} has a Python lambda, whose byte code is in the file"
    if kind == LAMBDA_LAYER:
        return f"{owner} is a Lambda layer, which runs Python code that the file names or holds"
    if isinstance(kind, str) and kind in LOADERS:
        return f"{owner} {LOADERS[kind]}"
    if (
        isinstance(kind, str)
        and kind in LOOKUPS
        and isinstance(inner, Mapping)
        and isinstance(inner.get("vocabulary"), str)
    ):
        return f"{owner} reads its vocabulary from the file {_short(inner['vocabulary'])}"
    if kind == "function" and not _names_a_modelling_function(node):
        return f"{owner} names the function {_short(node.get('module'))}.{_short(inner)}"
    return None


def _names_a_modelling_function(node: Mapping[str, Any]) -> bool:
    """True for a function that models are made of; a user's own is imported, never run."""
    module = node.get("module")
    if not isinstance(module, str) or module.split(".", maxsplit=1)[0] not in OWN_PACKAGES:
        return True
    return MODELLING.fullmatch(module) is not None


def _custom_name(node: Mapping[str, Any]) -> str | None:
    kind, module, registered = (node.get(key) for key in ("class_name", "module", "registered_name"))
    if not isinstance(kind, str):
        return None
    shown = str(node.get("config")) if kind == "function" else kind
    if isinstance(registered, str) and ">" in registered:
        return _short(registered)
    if isinstance(module, str) and module.split(".", maxsplit=1)[0] not in OWN_PACKAGES:
        return _short(f"{module}.{shown}")
    return _short(kind) if ">" in kind else None


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"
