"""Exports a Keras model with the names that its author gave: keys of dicts, or inputs and layers."""

import keyword
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfs_proxy.savedmodel_export.export_request import ExportReport
from tfs_proxy.signature import DEFAULT_SIGNATURE


def export_named(keras: Any, model: Any, target: Path) -> ExportReport:
    """Write the SavedModel with one signature; the report names its inputs, if they have an order."""
    import tensorflow as tf

    # A Sequential model that was loaded has no `input`, and one whose tensors are nested has no such names.
    taken, given = getattr(model, "input", model.inputs), getattr(model, "output", model.outputs)
    inputs, outputs = (
        _by_name(taken, [each.name for each in model.inputs]),
        _by_name(given, _answering(model)),
    )
    sent = {name: _identifier(name) for name in inputs}
    ordered = isinstance(taken, list | tuple) and len(taken) > 1
    if not inputs or not outputs or len(set(sent.values())) < len(sent):
        model.export(str(target))
        return ExportReport()

    def serve(named: Mapping[str, Any]) -> Mapping[str, Any]:
        tensors = [named[key] for key in sent.values()]
        by_key = isinstance(taken, dict)
        answer = model(
            dict(zip(sent, tensors, strict=True)) if by_key else tensors if ordered else tensors[0]
        )
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
    return ExportReport(warnings=renamed, inputs=tuple(sent.values()) if ordered else ())


def _answering(model: Any) -> list[str]:
    """The names of the layers that the outputs come from."""
    names: list[str] = getattr(model, "output_names", None) or [model.layers[-1].name]
    return names if len(set(names)) == len(names) else [f"output_{index}" for index in range(len(names))]


def _by_name(structure: Any, names: list[str]) -> dict[str, Any]:
    """Tensors by the keys of a dict, or by ``names``; nothing if they are nested deeper."""
    flat = isinstance(structure, list | tuple)
    named = structure if isinstance(structure, dict) else dict(zip(names, structure if flat else [structure]))  # noqa: B905
    return {} if any(isinstance(each, dict | list | tuple) for each in named.values()) else dict(named)


def _identifier(name: str) -> str:
    """A name that a tensor of a signature can have."""
    text = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    return text if text[:1].isalpha() and not keyword.iskeyword(text) else f"arg_{text}"
