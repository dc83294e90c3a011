"""Whether tensors have the shapes that a signature declares, and the sentence about those that do not.

TensorFlow Serving takes many shapes that a signature does not declare, so nothing is refused for its
shape alone; this explains what a model server has refused.
"""

import sys
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy.typing as npt

from tfs_proxy.signature import Signature
from tfs_proxy.wire.dtypes import MAX_DIMENSIONS

_WIDEST_ITEM_BYTES = 16

Declared = Sequence[int | None] | None
"""A shape of a signature: None for an unknown rank, and in it None for an unknown size."""


def fits(shape: Sequence[int], declared: Declared) -> bool:
    """Whether a tensor of ``shape`` is what ``declared`` allows."""
    if declared is None:
        return True
    return len(shape) == len(declared) and all(
        wanted in {None, size} for size, wanted in zip(shape, declared, strict=True)
    )


def is_possible(shape: Sequence[int]) -> bool:
    """Whether numpy can have an array of ``shape``, whatever its type; it counts sizes beside a 0, too."""
    if len(shape) > MAX_DIMENSIONS:  # the product of many sizes would take hours
        return False
    items = prod(size for size in shape if size)
    return items * _WIDEST_ITEM_BYTES <= sys.maxsize


def shape_text(declared: Sequence[int | None]) -> str:
    """A shape for people: ``[?, 3]``."""
    return "[" + ", ".join("?" if size is None else str(size) for size in declared) + "]"


def misfits(inputs: Mapping[str, npt.NDArray[Any]], signature: Signature) -> Mapping[str, str]:
    """A sentence by input name for each input whose shape the signature does not declare."""
    declared = {name: spec.shape for name, spec in signature.inputs.items() if spec.shape is not None}
    return {
        name: f'The input "{name}" has shape {shape_text(inputs[name].shape)}, expected {shape_text(shape)}.'
        for name, shape in declared.items()
        if name in inputs and not fits(inputs[name].shape, shape)
    }
