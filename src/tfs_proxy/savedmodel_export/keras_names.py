"""Exports a Keras model with the names that its author gave: keys of dicts, or inputs and layers."""

import keyword
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from tfs_proxy.signature import DEFAULT_SIGNATURE


class ExportedNames(Struct, frozen=True):
    """The inputs in their order, if they are a list, and sentences about those that were renamed."""

    inputs: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def export_named(keras: Any, model: Any, target: Path) -> ExportedNames:
    """Write the SavedModel with one signature."""
    import tensorflow as tf

    # A Sequential model that was loaded has no `input`, and one whose tensors are nested has no such names.
    taken, given = getattr(model, "input", model.inputs), getattr(model, "output", model.outputs)
    inputs, outputs = (
        _by_name(taken, [each.name for each in model.inputs]),
        _by_name(given, _answering(model)),
    )
    sent = {name: _identifier(name) for name in inputs}
    if not inputs or not outputs or len(set(sent.values())) < len(sent):
        model.export(str(target))
        return ExportedNames()

    def serve(named: Mapping[str, Any]) -> Mapping[str, Any]:
        tensors = {name: named[key] for name, key in sent.items()}
        answer = model(tensors if isinstance(taken, dict) else _as_given(taken, list(tensors.values())))
        return _by_name(answer, list(outputs))

    specs = {
        sent[name]: tf.TensorSpec((None, *tensor.shape[1:]), tensor.dtype, sent[name])
        for name, tensor in inputs.items()
    }
    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint(DEFAULT_SIGNATURE, serve, input_signature=[specs])
    archive.write_out(str(target))
    renamed = tuple(
        f"Requests call the input {name!r} {key}: a SavedModel's inputs are named as Python's variables are."
        for name, key in sent.items()
        if name != key
    )
    return ExportedNames(tuple(sent.values()) if isinstance(taken, list | tuple) else (), renamed)


def _answering(model: Any) -> list[str]:
    """The names of the layers that the outputs come from."""
    names: list[str] = getattr(model, "output_names", None) or [model.layers[-1].name]
    return names if len(set(names)) == len(names) else [f"output_{index}" for index in range(len(names))]


def _by_name(structure: Any, names: list[str]) -> dict[str, Any]:
    """Tensors by the keys of a dict, or by ``names``; nothing if they are nested deeper."""
    flat = isinstance(structure, list | tuple)
    named = structure if isinstance(structure, dict) else dict(zip(names, structure if flat else [structure]))  # noqa: B905
    return {} if any(isinstance(each, dict | list | tuple) for each in named.values()) else dict(named)


def _as_given(structure: Any, tensors: list[Any]) -> Any:
    """Tensors as a model takes them whose inputs are a list, or one tensor."""
    return tensors if isinstance(structure, list | tuple) and len(tensors) > 1 else tensors[0]


def _identifier(name: str) -> str:
    """A name that a tensor of a signature can have."""
    text = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    return text if text[:1].isalpha() and not keyword.iskeyword(text) else f"arg_{text}"
