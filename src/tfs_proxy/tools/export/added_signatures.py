"""Saves a SavedModel again with a new ``serving_default``: pictures or tables in, labels out.

The export process calls it; the network's own signature is kept as ``raw``, and both share the variables.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import tensorflow as tf

from tfs_proxy.tools.export.preprocessing import Preprocessing
from tfs_proxy.tools.export.stages import ImageStage, LabelStage, TableStage, Tensors
from tfs_proxy.values.errors import ExportError
from tfs_proxy.values.signature import DEFAULT_SIGNATURE

RAW: Final = "raw"
SHOWN_CHARACTERS = 500


def add_signatures(source: Path, target: Path, preprocessing: Preprocessing) -> Sequence[str]:
    """Save the model of ``source`` in ``target`` with ``preprocessing`` before and after its signature.

    Returns warnings, a sentence each. Raises ExportError if the preprocessing does not fit the model.
    """
    try:
        loaded = tf.saved_model.load(str(source))
    except Exception as error:
        raise ExportError(f"{source} can't be loaded to add to its graph: {_one_line(error)}") from error
    if hasattr(loaded, "prune"):
        raise ExportError(
            f"{source} was saved by TensorFlow 1, whose models can't be saved once more: load and save it "
            "with tf.saved_model in TensorFlow 2 from its own code, or pack it without these flags."
        )
    network = _own_signature(source, loaded)
    image = preprocessing.image
    specs = network.structured_input_signature[1]
    tables = preprocessing.standardize
    first = TableStage(tables, specs) if image is None else ImageStage(image, specs)
    last = LabelStage(preprocessing, network.structured_outputs)

    def answer(inputs: Tensors) -> Tensors:
        return last.tensors(network(**first.tensors(inputs)))

    serve = tf.function(answer, input_signature=[first.signature])
    warnings = _tried(first, last, network, serve)
    module = tf.Module()
    module.network = loaded
    module.serve = serve
    signatures = {**loaded.signatures, RAW: network, DEFAULT_SIGNATURE: serve.get_concrete_function()}
    tf.saved_model.save(module, str(target), signatures=signatures)
    return warnings


def _own_signature(source: Path, loaded: Any) -> Any:
    """The signature to wrap: ``serving_default``, or the only one."""
    signatures = loaded.signatures
    if RAW in signatures:
        raise ExportError(f"{source} has a signature {RAW} already: add to the model that it was made from.")
    if DEFAULT_SIGNATURE in signatures:
        return signatures[DEFAULT_SIGNATURE]
    if len(signatures) != 1:
        names = ", ".join(sorted(signatures)) or "none"
        raise ExportError(f"{source} has no signature {DEFAULT_SIGNATURE} to add to; it has {names}.")
    return next(iter(signatures.values()))


def _tried(first: ImageStage | TableStage, last: LabelStage, network: Any, serve: Any) -> Sequence[str]:
    """Warnings after one trial request. Raises ExportError if pictures are not answered.

    A table's sample may be wrong in ways that its signature does not tell, so its failure is ignored.
    """
    sample = first.sample()
    if sample is None:
        return ()
    try:
        warnings = last.warnings(network(**first.tensors(sample)))
        serve(sample)
    except (tf.errors.OpError, ValueError, TypeError) as error:
        reason = f"the model does not answer a sample of its input: {_one_line(error)}"
        if isinstance(first, ImageStage):
            raise ExportError(f"--decode-image: {reason}") from error
        return [f"The new signature was not tried: {reason}"]
    return warnings


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:SHOWN_CHARACTERS]
